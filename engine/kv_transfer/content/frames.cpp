#include "engine/kv_transfer/content/frames.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/kv_transfer/content/frame_sum.h"
#include "engine/wire/protobuf.h"

namespace quire {
namespace {

constexpr std::uint32_t kMagic = 0x31564b51;  // "QKV1"

void put(std::span<std::byte> out, std::uint64_t value) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(value >> (8 * i));
}

std::uint64_t get(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  return value;
}

Error broken(std::string detail) {
  return {ErrorCode::invalid_argument, "a frame on the line " + std::move(detail), {}};
}

std::uint64_t checksum_of(const KvFrameHeader& header, std::span<const std::byte> body) {
  return sum_of_body(header).end(body);
}

}  // namespace

KvSum sum_of_body(const KvFrameHeader& header) {
  std::array<std::byte, 32> fields{};
  const std::span all(fields);
  put(all.subspan(0, 8), static_cast<std::uint64_t>(header.type));
  put(all.subspan(8, 8), header.stream);
  put(all.subspan(16, 8), header.sequence);
  put(all.subspan(24, 8), header.size);
  return KvSum(kv_checksum(fields));
}

KvFrameHeader sealed(KvFrameHeader header, std::span<const std::byte> body) {
  header.size = body.size();
  header.checksum = checksum_of(header, body);
  return header;
}

bool is_intact(const KvFrameHeader& header, std::span<const std::byte> body) {
  return header.size == body.size() && header.checksum == checksum_of(header, body);
}

std::array<std::byte, kKvHeaderBytes> encode(const KvFrameHeader& header) {
  std::array<std::byte, kKvHeaderBytes> bytes{};
  const std::span all(bytes);
  put(all.subspan(0, 4), kMagic);
  put(all.subspan(4, 4), static_cast<std::uint64_t>(header.type));
  put(all.subspan(8, 8), header.stream);
  put(all.subspan(16, 8), header.sequence);
  put(all.subspan(24, 8), header.size);
  put(all.subspan(32, 8), header.checksum);
  return bytes;
}

Result<KvFrameHeader> parse_kv_header(std::span<const std::byte, kKvHeaderBytes> bytes) {
  if (get(bytes.subspan(0, 4)) != kMagic) return broken("does not begin as one of this protocol");
  const std::uint64_t type = get(bytes.subspan(4, 4));
  if (type > static_cast<std::uint64_t>(KvFrameType::expected))
    return broken(fmt::format("has type {}, which is not known", type));
  const KvFrameHeader header{.type = static_cast<KvFrameType>(type),
                             .stream = get(bytes.subspan(8, 8)),
                             .sequence = get(bytes.subspan(16, 8)),
                             .size = get(bytes.subspan(24, 8)),
                             .checksum = get(bytes.subspan(32, 8))};
  const bool is_piece = header.type == KvFrameType::piece;
  const std::uint64_t most = is_piece ? kPieceBytes : kMaxKvMessageBytes;
  if (header.size > most)
    return broken(fmt::format("has a body of {} bytes; {} is the most", header.size, most));
  return header;
}

template <class Message>
std::string encode_kv(const Message& message) {
  proto::Writer writer;
  for_each_field(writer, message);
  return std::move(writer.out);
}

template <class Message>
std::optional<Message> decode_kv(std::string_view body) {
  Message message;
  if (!proto::Reader(body).read(message)) return std::nullopt;
  return message;
}

std::string protocol_difference(const KvWelcome& theirs) {
  if (theirs.protocol == kKvProtocol) return {};
  return fmt::format(
      "protocol is {} here and {} there: Quire servers of releases that do not go together",
      kKvProtocol, theirs.protocol);
}

template std::string encode_kv(const KvHello&);
template std::string encode_kv(const KvWelcome&);
template std::string encode_kv(const KvKey&);
template std::string encode_kv(const KvRead&);
template std::string encode_kv(const KvBegin&);
template std::string encode_kv(const KvRefused&);
template std::string encode_kv(const KvRenew&);
template std::string encode_kv(const KvPlaced&);
template std::string encode_kv(const KvCopied&);
template std::string encode_kv(const KvChunk&);
template std::string encode_kv(const KvExpect&);
template std::optional<KvHello> decode_kv(std::string_view);
template std::optional<KvWelcome> decode_kv(std::string_view);
template std::optional<KvKey> decode_kv(std::string_view);
template std::optional<KvRead> decode_kv(std::string_view);
template std::optional<KvBegin> decode_kv(std::string_view);
template std::optional<KvRefused> decode_kv(std::string_view);
template std::optional<KvRenew> decode_kv(std::string_view);
template std::optional<KvPlaced> decode_kv(std::string_view);
template std::optional<KvCopied> decode_kv(std::string_view);
template std::optional<KvChunk> decode_kv(std::string_view);
template std::optional<KvExpect> decode_kv(std::string_view);

std::uint64_t prompt_hash(std::span<const std::int32_t> tokens) {
  std::vector<std::byte> bytes(tokens.size() * sizeof(std::uint32_t));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    put(std::span(bytes).subspan(4 * i, 4), static_cast<std::uint32_t>(tokens[i]));
  return kv_checksum(bytes, tokens.size());
}

}  // namespace quire
