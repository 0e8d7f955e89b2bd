#include "engine/kv_nixl/msgpack_value.h"

#include <bit>

#include "base/error.h"

namespace quire {
namespace {

constexpr int kDeepest = 16;

[[noreturn]] void fail(const char* why) {
  throw Failure(ErrorCode::invalid_argument, std::string("MessagePack ") + why);
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  bool at_end() const { return rest_.empty(); }

  MsgpackValue value(int depth) {
    if (depth > kDeepest) fail("is nested too deeply");
    const auto tag = static_cast<std::uint8_t>(number(1));
    if (tag < 0x80) return integer(tag);
    if (tag < 0x90) return map(tag & 0x0f, depth);
    if (tag < 0xa0) return array(tag & 0x0f, depth);
    if (tag < 0xc0) return MsgpackValue(text(tag & 0x1f));
    if (tag >= 0xe0) return integer(static_cast<std::int8_t>(tag));
    return tagged(tag, depth);
  }

 private:
  static MsgpackValue integer(std::int64_t value) {
    return MsgpackValue(MsgpackValue::Kind(value));
  }

  MsgpackValue tagged(std::uint8_t tag, int depth) {
    switch (tag) {
      case 0xc0:
        return MsgpackValue();
      case 0xc2:
        return MsgpackValue(MsgpackValue::Kind(false));
      case 0xc3:
        return MsgpackValue(MsgpackValue::Kind(true));
      case 0xc4:
      case 0xc5:
      case 0xc6:
        return MsgpackValue(MsgpackValue::Binary{text(number(1 << (tag - 0xc4)))});
      case 0xca:
        return real(std::bit_cast<float>(static_cast<std::uint32_t>(number(4))));
      case 0xcb:
        return real(std::bit_cast<double>(number(8)));
      case 0xcc:
      case 0xcd:
      case 0xce:
      case 0xcf:
        return unsigned_integer(number(1 << (tag - 0xcc)));
      case 0xd0:
        return integer(static_cast<std::int8_t>(number(1)));
      case 0xd1:
        return integer(static_cast<std::int16_t>(number(2)));
      case 0xd2:
        return integer(static_cast<std::int32_t>(number(4)));
      case 0xd3:
        return integer(static_cast<std::int64_t>(number(8)));
      case 0xd9:
      case 0xda:
      case 0xdb:
        return MsgpackValue(text(number(1 << (tag - 0xd9))));
      case 0xdc:
      case 0xdd:
        return array(number(2 << (tag - 0xdc)), depth);
      case 0xde:
      case 0xdf:
        return map(number(2 << (tag - 0xde)), depth);
      default:
        fail("has a type that no handshake has");
    }
  }

  static MsgpackValue real(double value) { return MsgpackValue(MsgpackValue::Kind(value)); }
  static MsgpackValue unsigned_integer(std::uint64_t value) {
    if (value <= INT64_MAX) return integer(static_cast<std::int64_t>(value));
    return MsgpackValue(MsgpackValue::Kind(value));
  }

  std::uint64_t number(int bytes) {
    std::uint64_t value = 0;
    for (const char byte : text(static_cast<std::uint64_t>(bytes)))
      value = value << 8 | static_cast<std::uint8_t>(byte);
    return value;
  }

  std::string text(std::uint64_t bytes) {
    if (bytes > rest_.size()) fail("ends too early");
    std::string taken(rest_.substr(0, bytes));
    rest_.remove_prefix(bytes);
    return taken;
  }

  MsgpackValue array(std::uint64_t size, int depth) {
    if (size > rest_.size()) fail("ends too early");  // each takes a byte at least
    MsgpackValue::Array items;
    for (std::uint64_t i = 0; i < size; ++i) items.push_back(value(depth + 1));
    return MsgpackValue(std::move(items));
  }

  MsgpackValue map(std::uint64_t size, int depth) {
    if (size > rest_.size() / 2) fail("ends too early");
    MsgpackValue::Map members;
    for (std::uint64_t i = 0; i < size; ++i) {
      MsgpackValue key = value(depth + 1);
      members.emplace_back(std::move(key), value(depth + 1));
    }
    return MsgpackValue(std::move(members));
  }

  std::string_view rest_;
};

}  // namespace

std::optional<std::uint64_t> MsgpackValue::as_unsigned() const {
  if (const auto* value = std::get_if<std::uint64_t>(&kind_)) return *value;
  const auto* value = std::get_if<std::int64_t>(&kind_);
  if (value == nullptr || *value < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*value);
}

const std::string* MsgpackValue::as_binary() const {
  if (const auto* binary = std::get_if<Binary>(&kind_)) return &binary->bytes;
  return as_text();
}

const MsgpackValue* MsgpackValue::find(std::string_view name) const {
  const Map* members = as_map();
  if (members == nullptr) return nullptr;
  const MsgpackValue* found = nullptr;
  for (const auto& [key, value] : *members)
    if (const std::string* text = key.as_text(); text != nullptr && *text == name) found = &value;
  return found;
}

Result<MsgpackValue> parse_msgpack(std::string_view bytes) try {
  Reader reader(bytes);
  MsgpackValue value = reader.value(0);
  if (!reader.at_end()) fail("goes on behind its end");
  return value;
} catch (const Failure& failure) {
  return failure.error();
}

}  // namespace quire
