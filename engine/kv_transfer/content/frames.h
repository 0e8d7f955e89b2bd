#pragma once
// What travels between two Quire engines that hand over keys and values. A frame is a header of 40
// bytes and a body; all but pieces carry a message as Protobuf. The one who decodes connects and
// asks:
//
//   hello →               ← welcome            once per connection
//   read →                ← begin, piece 0 … n − 1   or ← refused
//   read, a part →        ← begin, piece 0 … n − 1 of it: several lines share what is large
//   read, in place →      ← begin, placed 0 … n − 1  or ← refused
//   copied →
//   expect →              ← alive …, then expected or refused; any number at a time over a line
//   read, pushed →        ← alive … begin, then until all tokens are there: alive …, chunk, its
//                           pieces or placed … or ← refused, at any time between them
//   renew →, release →                          no answer
//
// Pure functions; whatever the bytes are, nothing is read outside of them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"
#include "base/result.h"
#include "engine/kv_transfer/content/content.h"
#include "engine/kv_transfer/content/geometry.h"
#include "engine/request/kv_loss.h"

namespace quire {

// Grows with each change of what Quire servers say to each other beside, or instead of, what vLLM's
// understand, whatever the plane: only equal ones exchange anything.
inline constexpr int kKvProtocol = 3;

enum class KvFrameType : std::uint8_t {
  hello,
  welcome,
  read,
  begin,
  piece,
  refused,
  renew,
  release,
  placed,
  copied,
  alive,
  chunk,
  expect,
  expected
};

struct KvFrameHeader {
  KvFrameType type = KvFrameType::hello;
  std::uint64_t stream = 0;    // the read that it belongs to; 0: none
  std::uint64_t sequence = 0;  // of a piece
  std::uint64_t size = 0;      // bytes of the body
  std::uint64_t checksum = 0;  // of the body and of the fields above
};

inline constexpr std::size_t kKvHeaderBytes = 40;
inline constexpr std::size_t kMaxKvMessageBytes = 1 << 20;

// With size and checksum of the body.
KvFrameHeader sealed(KvFrameHeader header, std::span<const std::byte> body);
bool is_intact(const KvFrameHeader& header, std::span<const std::byte> body);

std::array<std::byte, kKvHeaderBytes> encode(const KvFrameHeader& header);
// Refuses what is not a header, and bodies that are larger than their kind may be.
Result<KvFrameHeader> parse_kv_header(std::span<const std::byte, kKvHeaderBytes> bytes);

struct KvHello {
  int protocol = kKvProtocol;

  using Fields = FieldList<&KvHello::protocol>;
};

struct KvWelcome {
  int protocol = 0;
  std::string engine;  // changes with each start
  KvGeometry geometry;
  // Size of the memory whose descriptor comes with this frame, on one machine; 0: none does.
  std::int64_t shared_bytes = 0;

  using Fields = FieldList<&KvWelcome::protocol, &KvWelcome::engine, &KvWelcome::geometry,
                           &KvWelcome::shared_bytes>;
};

// Why nothing is exchanged with a server of another release; empty: its protocol is ours.
std::string protocol_difference(const KvWelcome& theirs);

struct KvKey {
  std::string key;
  std::uint64_t generation = 0;

  using Fields = FieldList<&KvKey::key, &KvKey::generation>;
};

struct KvRead {
  KvKey prefill;
  int num_tokens = 0;             // that it must have
  int from = 0;                   // those before are there already
  std::uint64_t prompt_hash = 0;  // of the tokens, see prompt_hash()
  bool in_place = false;          // out of the memory that came with welcome
  // It is being computed, or will be: parts are sent as they are there.
  bool pushed = false;
  int alive_ms = 0;  // the longest between two frames then
  // Which of `parts` equal parts of its pieces is asked for.
  int part = 0;
  int parts = 1;

  using Fields = FieldList<&KvRead::prefill, &KvRead::num_tokens, &KvRead::from,
                           &KvRead::prompt_hash, &KvRead::in_place, &KvRead::pushed,
                           &KvRead::alive_ms, &KvRead::part, &KvRead::parts>;
};

// Where a piece lies in that memory. It stays there until the reader says that it has copied all.
struct KvPlaced {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  std::uint64_t checksum = 0;  // what the piece's own frame would have

  using Fields = FieldList<&KvPlaced::offset, &KvPlaced::bytes, &KvPlaced::checksum>;
};

struct KvCopied {
  int pieces = 0;

  using Fields = FieldList<&KvCopied::pieces>;
};

struct KvBegin {
  std::int64_t pieces = 0;
  std::int64_t bytes = 0;

  using Fields = FieldList<&KvBegin::pieces, &KvBegin::bytes>;
};

struct KvRefused {
  KvLossReason reason = KvLossReason::refused;
  std::string detail;
  std::string elsewhere = {};  // the address to ask at instead; empty: nowhere

  using Fields = FieldList<&KvRefused::reason, &KvRefused::detail, &KvRefused::elsewhere>;
};

// A prefill that will be pushed: whoever sends this is told when it begins.
struct KvExpect {
  KvKey prefill;
  int alive_ms = 0;  // the longest between two frames until then

  using Fields = FieldList<&KvExpect::prefill, &KvExpect::alive_ms>;
};

// The rows of the tokens before `until` follow, but for those that were sent.
struct KvChunk {
  int until = 0;

  using Fields = FieldList<&KvChunk::until>;
};

struct KvRenew {
  std::vector<KvKey> prefills;

  using Fields = FieldList<&KvRenew::prefills>;
};

template <class Message>
std::string encode_kv(const Message& message);
// Empty: broken.
template <class Message>
std::optional<Message> decode_kv(std::string_view body);

// A hash of the tokens whose keys and values are kept: a fetch must be of the same prompt.
std::uint64_t prompt_hash(std::span<const std::int32_t> tokens);

}  // namespace quire
