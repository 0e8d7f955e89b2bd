#pragma once
// Protobuf's wire format for structs with a list of fields (base/fields.h). Every field has
// presence: all are written, and what is absent when read keeps the struct's default. Unknown
// fields are skipped.

#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/fields.h"
#include "base/ids.h"

namespace quire {
namespace proto {

enum class WireType : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

// Elements of one repeated message field: a short input must not ask for much memory.
inline constexpr std::size_t kMaxRepeated = 1 << 17;

template <class T>
concept Number = std::is_integral_v<T> || std::is_enum_v<T>;

// A value beyond an enum's last comes from a newer version and counts as absent.
template <class E>
constexpr bool is_known(std::uint64_t value) {
  constexpr auto kCount = static_cast<std::uint64_t>(num_enumerators<E>());
  static_assert(kCount > 0);
  return value < kCount;
}
// What an optional enum becomes then.
template <class E>
inline constexpr std::optional<E> kIfUnknown = std::nullopt;

// Times are written as nanoseconds since an origin, on the sender's clock; unset ones are absent.
using Time = std::chrono::steady_clock::time_point;

struct Writer {
  explicit Writer(Time origin = {}) : origin(origin) {}

  std::string out;
  const Time origin;

  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
    out.push_back(static_cast<char>(value));
  }
  void tag(int field, WireType type) {
    varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(type));
  }
  void bytes(int field, std::string_view value) {
    tag(field, WireType::bytes);
    varint(value.size());
    out.append(value);
  }
  template <class Bits>
  void fixed(Bits bits) {
    for (std::size_t i = 0; i < sizeof(Bits); ++i)
      out.push_back(static_cast<char>(bits >> (8 * i)));
  }

  // Signed integers are sign-extended, as int32 and int64 are.
  template <Number T>
  void operator()(int field, T value) {
    tag(field, WireType::varint);
    varint(static_cast<std::uint64_t>(static_cast<std::int64_t>(value)));
  }
  void operator()(int field, float value) {
    tag(field, WireType::fixed32);
    fixed(std::bit_cast<std::uint32_t>(value));
  }
  void operator()(int field, double value) {
    tag(field, WireType::fixed64);
    fixed(std::bit_cast<std::uint64_t>(value));
  }
  void operator()(int field, const std::string& value) { bytes(field, value); }
  template <class Tag, class Int>
  void operator()(int field, StrongId<Tag, Int> id) {
    (*this)(field, id.value);
  }
  void operator()(int field, Time time) {
    if (time != Time()) (*this)(field, static_cast<std::int64_t>((time - origin).count()));
  }
  template <class T>
  void operator()(int field, const std::optional<T>& value) {
    if (value) (*this)(field, *value);
  }
  void operator()(int field, const std::vector<std::int32_t>& values) {
    if (values.empty()) return;
    Writer packed;
    for (const std::int32_t value : values) {
      packed.varint(static_cast<std::uint64_t>(static_cast<std::int64_t>(value)));
    }
    bytes(field, packed.out);
  }
  void operator()(int field, const std::vector<float>& values) {
    if (values.empty()) return;
    Writer packed;
    for (const float value : values) packed.fixed(std::bit_cast<std::uint32_t>(value));
    bytes(field, packed.out);
  }
  template <class T>
  void operator()(int field, const std::vector<T>& values) {
    for (const T& value : values) (*this)(field, value);
  }
  template <HasFields T>
  void operator()(int field, const T& message) {
    Writer nested(origin);
    for_each_field(nested, message);
    bytes(field, nested.out);
  }
};

// One field of the input: what a struct's visitor is offered, and takes if the number is its own.
class Reader {
 public:
  explicit Reader(std::string_view input, Time origin = {}) : rest_(input), origin_(origin) {}

  // Reads all fields into the struct. False: the input is broken.
  template <class T>
  bool read(T& message) {
    while (!rest_.empty() && next_field()) for_each_field(*this, message);
    return ok_;
  }

  // The next field's number, 0 at the end or when broken; its bytes if it is a message.
  int next() { return !rest_.empty() && next_field() ? field_ : 0; }
  bool ok() const { return ok_; }
  std::optional<std::string_view> message() const {
    if (type_ != WireType::bytes) return std::nullopt;
    return bytes_;
  }

  template <Number T>
  void operator()(int field, T& value) {
    if (!is(field, WireType::varint)) return;
    if constexpr (std::is_enum_v<T>) {
      if (is_known<T>(number_)) value = static_cast<T>(number_);
    } else {
      value = static_cast<T>(number_);
    }
  }
  void operator()(int field, float& value) {
    if (is(field, WireType::fixed32)) {
      value = std::bit_cast<float>(static_cast<std::uint32_t>(number_));
    }
  }
  void operator()(int field, double& value) {
    if (is(field, WireType::fixed64)) value = std::bit_cast<double>(number_);
  }
  void operator()(int field, std::string& value) {
    if (is(field, WireType::bytes)) value = bytes_;
  }
  template <class Tag, class Int>
  void operator()(int field, StrongId<Tag, Int>& id) {
    (*this)(field, id.value);
  }
  void operator()(int field, Time& time) {
    if (!is(field, WireType::varint)) return;
    // Unsigned, because a peer may send any number.
    const auto since = static_cast<std::uint64_t>(origin_.time_since_epoch().count()) + number_;
    const Time read{Time::duration(static_cast<std::int64_t>(since))};
    if (read != Time()) time = read;  // that one is written as absent
  }
  template <class T>
  void operator()(int field, std::optional<T>& value) {
    if (field != field_) return;
    if constexpr (std::is_enum_v<T>) {
      if (!is_known<T>(number_)) {
        value = kIfUnknown<T>;
        return;
      }
    }
    T read = value.value_or(T());
    (*this)(field, read);
    value = std::move(read);
  }
  // Packed or one by one.
  void operator()(int field, std::vector<std::int32_t>& values) {
    if (is(field, WireType::varint)) values.push_back(static_cast<std::int32_t>(number_));
    if (!is(field, WireType::bytes)) return;
    Reader packed(bytes_);
    while (packed.ok_ && !packed.rest_.empty()) {
      values.push_back(static_cast<std::int32_t>(packed.varint()));
    }
    ok_ = ok_ && packed.ok_;
  }
  void operator()(int field, std::vector<float>& values) {
    if (is(field, WireType::fixed32))
      values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(number_)));
    if (!is(field, WireType::bytes)) return;
    Reader packed(bytes_);
    while (packed.ok_ && !packed.rest_.empty())
      values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(packed.fixed(4))));
    if (!packed.ok_) ok_ = false;
  }
  template <class T>
  void operator()(int field, std::vector<T>& values) {
    if (field != field_) return;
    if (values.size() >= kMaxRepeated) {
      ok_ = false;
      return;
    }
    (*this)(field, values.emplace_back());
  }
  template <HasFields T>
  void operator()(int field, T& message) {
    if (is(field, WireType::bytes) && !Reader(bytes_, origin_).read(message)) ok_ = false;
  }

 private:
  bool is(int field, WireType type) const { return field == field_ && type == type_; }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    ok_ = false;
    return 0;
  }

  std::uint64_t fixed(std::size_t size) {
    if (rest_.size() < size) {
      ok_ = false;
      return 0;
    }
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) {
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(rest_[i])) << (8 * i);
    }
    rest_.remove_prefix(size);
    return value;
  }

  bool next_field() {
    const std::uint64_t tag = varint();
    if (tag >> 3 == 0 || tag >> 3 > 536'870'911) ok_ = false;  // the format's largest number
    field_ = static_cast<int>(tag >> 3);
    type_ = static_cast<WireType>(tag & 7);
    switch (type_) {
      case WireType::varint:
        number_ = varint();
        break;
      case WireType::fixed64:
        number_ = fixed(8);
        break;
      case WireType::fixed32:
        number_ = fixed(4);
        break;
      case WireType::bytes: {
        const std::uint64_t size = varint();
        ok_ = ok_ && size <= rest_.size();
        bytes_ = rest_.substr(0, ok_ ? size : 0);
        rest_.remove_prefix(bytes_.size());
        break;
      }
      default:
        ok_ = false;
    }
    if (!ok_) rest_ = {};
    return ok_;
  }

  std::string_view rest_;
  Time origin_;
  bool ok_ = true;
  int field_ = 0;
  WireType type_ = WireType::varint;
  std::uint64_t number_ = 0;
  std::string_view bytes_;
};

}  // namespace proto
}  // namespace quire
