#include "engine/runner/rank_line.h"

#include <cstring>
#include <string>

#include "base/error.h"

namespace quire {
namespace {

constexpr std::uint32_t kSlots = 4;
// Address space, of which a message takes what it needs.
constexpr std::size_t kSlotBytes = std::size_t{256} << 20;
constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

template <class T>
std::span<const std::byte> bytes_of(const T* data, std::size_t count) {
  return {reinterpret_cast<const std::byte*>(data), count * sizeof(T)};
}

// Where the blocks begin, and behind them the payload.
constexpr std::size_t kHeader = (sizeof(RankMessage) + kAlignment - 1) / kAlignment * kAlignment;

}  // namespace

std::size_t RankLine::bytes(int) {
  return aligned(sizeof(Counts)) + kSlots * kSlotBytes + OtherRanks::kMostBytes;
}

RankLine::RankLine(std::byte* memory, int rank, int size)
    : memory_(*reinterpret_cast<Counts*>(memory)),
      slots_(memory + aligned(sizeof(Counts))),
      rank_(rank),
      size_(size) {}

std::byte* RankLine::slot(std::uint32_t message) const {
  return slots_ + message % kSlots * kSlotBytes;
}

void RankLine::check_fits(std::size_t pack_bytes, std::size_t num_blocks) {
  const std::size_t most = kHeader + aligned(num_blocks * sizeof(BlockId)) + pack_bytes;
  if (most > kSlotBytes)
    throw Failure(ErrorCode::unsupported,
                  "a step of " + std::to_string(most) + " bytes is more than ranks can be sent, " +
                      std::to_string(kSlotBytes) + "; use a smaller SchedulerConfig::max_num_seqs");
}

void RankLine::tell_memory(std::int64_t bytes) {
  memory_.memory_bytes[rank_].store(bytes, std::memory_order_relaxed);
}

std::int64_t RankLine::memory_of(int rank) const {
  return memory_.memory_bytes[rank].load(std::memory_order_relaxed);
}

std::span<std::byte> RankLine::answer() const {
  return {slots_ + kSlots * kSlotBytes, OtherRanks::kMostBytes};
}

void RankLine::post(const RankMessage& message, std::span<const std::byte> zero_blocks,
                    std::span<const std::byte> payload, std::span<const std::byte> rest) {
  check_fits(payload.size() + rest.size(), zero_blocks.size() / sizeof(BlockId));
  const std::uint32_t next = num_messages_ + 1;
  for (int rank = 1; rank < size_; ++rank)
    memory_.taken[rank].wait_for(next - kSlots, &memory_.fate);
  std::byte* const to = slot(next);
  std::memcpy(to, &message, sizeof message);
  if (!zero_blocks.empty()) std::memcpy(to + kHeader, zero_blocks.data(), zero_blocks.size());
  std::byte* const behind = to + kHeader + aligned(zero_blocks.size());
  if (!payload.empty()) std::memcpy(behind, payload.data(), payload.size());
  if (!rest.empty()) std::memcpy(behind + payload.size(), rest.data(), rest.size());
  num_messages_ = next;
  memory_.posted.raise();
}

void RankLine::post(RankMessage::Kind kind, std::string_view payload) {
  RankMessage message;
  message.kind = kind;
  message.payload_bytes = payload.size();
  post(message, {}, bytes_of(payload.data(), payload.size()));
}

void RankLine::post_step(RankMessage::Kind kind, const StepShape& shape,
                         std::span<const BlockId> zero_blocks, std::span<const std::byte> pack) {
  RankMessage message;
  message.kind = kind;
  message.shape = shape;
  message.num_zero_blocks = static_cast<std::uint32_t>(zero_blocks.size());
  message.payload_bytes = pack.size();
  post(message, bytes_of(zero_blocks.data(), zero_blocks.size()), pack);
}

void RankLine::post_logits(std::int32_t first, std::int32_t end) {
  RankMessage message;
  message.kind = RankMessage::Kind::logits;
  message.first = first;
  message.end = end;
  post(message, {}, {});
}

void RankLine::post_bytes(RankMessage::Kind kind, RankBytes bytes,
                          std::span<const std::int64_t> words, std::span<const std::byte> rest) {
  RankMessage message;
  message.kind = kind;
  message.bytes = bytes;
  message.num_words = words.size();
  message.payload_bytes = words.size_bytes() + rest.size();
  post(message, {}, bytes_of(words.data(), words.size()), rest);
}

std::span<std::byte> RankLine::read(RankBytes kind, std::span<const std::int64_t> words,
                                    std::size_t num_bytes) {
  if (num_bytes > kMostBytes)
    throw Failure(ErrorCode::unsupported,
                  std::to_string(num_bytes) + " bytes of a cache are more than ranks can send");
  post_bytes(RankMessage::Kind::read, kind, words, {});
  for (int rank = 1; rank < size_; ++rank)
    memory_.taken[rank].wait_for(num_messages_, &memory_.fate);
  return answer().first(num_bytes);
}

void RankLine::write(RankBytes kind, std::span<const std::int64_t> words,
                     std::span<const std::byte> bytes) {
  post_bytes(RankMessage::Kind::write, kind, words, bytes);
}

RankLine::Taken RankLine::take() {
  // What was taken before is done with. Rank 0 may be idle for long: nothing is looked at meanwhile,
  // and its end ends this process.
  while (memory_.taken[rank_].value() != num_messages_) memory_.taken[rank_].raise();
  ++num_messages_;
  memory_.posted.wait_for(num_messages_, nullptr);
  const std::byte* const from = slot(num_messages_);
  Taken taken;
  std::memcpy(&taken.message, from, sizeof taken.message);
  const std::size_t blocks = taken.message.num_zero_blocks;
  taken.zero_blocks = {reinterpret_cast<const BlockId*>(from + kHeader), blocks};
  taken.payload = {from + kHeader + aligned(blocks * sizeof(BlockId)),
                   static_cast<std::size_t>(taken.message.payload_bytes)};
  const auto num_words = static_cast<std::size_t>(taken.message.num_words);
  taken.words = {reinterpret_cast<const std::int64_t*>(taken.payload.data()), num_words};
  taken.payload = taken.payload.subspan(taken.words.size_bytes());
  return taken;
}

}  // namespace quire
