#include "engine/wire/encoding.h"

#include <utility>

#include "engine/wire/protobuf.h"

namespace quire {

template <>
inline constexpr std::optional<FinishReason> proto::kIfUnknown<FinishReason> = FinishReason::stop;

namespace {

// An envelope has one field: the message, under the number of its kind. Numbers are the variants'
// indices plus one.
template <class Variant>
std::string encode_variant(const Variant& message) {
  proto::Writer envelope;
  std::visit([&](const auto& m) { envelope(static_cast<int>(message.index()) + 1, m); }, message);
  return std::move(envelope.out);
}

template <class Variant, std::size_t... I>
bool decode_kind(int kind, std::string_view bytes, std::optional<Variant>& out,
                 std::index_sequence<I...>) {
  const auto decode_as = [&]<std::size_t K>(std::integral_constant<std::size_t, K>) {
    std::variant_alternative_t<K, Variant> message{};
    if (!proto::Reader(bytes).read(message)) return false;
    out = std::move(message);
    return true;
  };
  bool ok = true;
  ((kind == static_cast<int>(I) + 1 ? void(ok = decode_as(std::integral_constant<std::size_t, I>()))
                                    : void()),
   ...);
  return ok;
}

template <class Variant>
Result<std::optional<Variant>> decode_variant(std::string_view bytes) {
  const Error broken{ErrorCode::invalid_argument, "a message on the wire is broken", {}};
  std::optional<Variant> message;
  proto::Reader envelope(bytes);
  while (const int kind = envelope.next()) {
    const auto body = envelope.message();
    if (body && !decode_kind<Variant>(kind, *body, message,
                                      std::make_index_sequence<std::variant_size_v<Variant>>())) {
      return broken;
    }
  }
  if (!envelope.ok()) return broken;
  return message;
}

}  // namespace

std::string encode(const Command& command) { return encode_variant(command); }
std::string encode(const EngineEvent& event) { return encode_variant(event); }

Result<std::optional<Command>> decode_command(std::string_view bytes) {
  return decode_variant<Command>(bytes);
}

Result<std::optional<EngineEvent>> decode_event(std::string_view bytes) {
  return decode_variant<EngineEvent>(bytes);
}

void append_frame(std::string& stream, std::string_view message) {
  proto::Writer length;
  length.fixed(static_cast<std::uint32_t>(message.size()));
  stream += length.out;
  stream += message;
}

Result<std::optional<std::string_view>> FrameReader::next() {
  if (read_ > 0 && read_ == buffer_.size()) {
    buffer_.clear();
    read_ = 0;
  } else if (read_ > kMaxFrameBytes) {
    buffer_.erase(0, read_);
    read_ = 0;
  }
  const std::string_view rest = std::string_view(buffer_).substr(read_);
  if (rest.size() < 4) return std::optional<std::string_view>();
  std::size_t length = 0;
  for (int i = 3; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(rest[i]);
  if (length > kMaxFrameBytes) {
    return Error{ErrorCode::too_large,
                 "a message of " + std::to_string(length) + " bytes; the limit is " +
                     std::to_string(kMaxFrameBytes),
                 {}};
  }
  if (rest.size() < 4 + length) return std::optional<std::string_view>();
  read_ += 4 + length;
  return std::optional(rest.substr(4, length));
}

}  // namespace quire
