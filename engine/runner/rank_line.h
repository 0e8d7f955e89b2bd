#pragma once
// The line from rank 0 of a tensor-parallel engine to its other ranks, through memory that they
// share: what a step has staged, and which of the model's calls follow. The others do the same in
// the same order; they never see a request. A message waits for those who are still at the fourth
// before it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "base/shared_memory.h"
#include "engine/kv_transfer/pages/other_ranks.h"
#include "engine/runner/input_batch.h"

namespace quire {

struct RankMessage {
  enum class Kind : std::uint32_t {
    configure,  // payload: an encoded Configure
    step,       // blocks to zero, payload: a pack of this shape; then the forward pass
    replay,     // the same, of a graph's shape: from that graph, and of uniform steps the logits
    capture,    // a pack of a graph's shape: runs it, and captures it
    zero,       // blocks to zero, without a step
    logits,     // of rows [first, end) of the step's hidden states
    samples,    // of the step's sampled rows
    draws,      // what the step has drawn comes to all ranks
    drafts,     // and what a draft model, which rank 0 alone has
    read,       // of the cache, what payload names: into the answer
    write,      // what follows the names goes into the cache
    warm,       // what ran so far was the warm-up: from now on nothing is allocated
  };
  Kind kind = Kind::warm;
  StepShape shape;
  std::int32_t first = 0, end = 0;
  std::uint32_t num_zero_blocks = 0;
  RankBytes bytes = RankBytes::rows;
  std::uint64_t num_words = 0;  // that payload begins with: what is read or written
  std::uint64_t payload_bytes = 0;
};

class RankLine final : public OtherRanks {
 public:
  // Of memory that begins as zeros; pages are there once a message has touched them.
  static std::size_t bytes(int size);
  RankLine(std::byte* memory, int rank, int size);

  int size() const override { return size_; }
  SharedFate& fate() const { return memory_.fate; }

  // Rank 0. Throw Failure when a rank is gone, and for what no message holds.
  void post(RankMessage::Kind kind, std::string_view payload = {});
  void post_step(RankMessage::Kind kind, const StepShape& shape,
                 std::span<const BlockId> zero_blocks, std::span<const std::byte> pack);
  void post_logits(std::int32_t first, std::int32_t end);
  static void check_fits(std::size_t pack_bytes, std::size_t num_blocks);
  std::span<std::byte> read(RankBytes kind, std::span<const std::int64_t> words,
                            std::size_t num_bytes) override;
  void write(RankBytes kind, std::span<const std::int64_t> words,
             std::span<const std::byte> bytes) override;

  // The other ranks: waits for the next message, which stays until the next call.
  struct Taken {
    RankMessage message;
    std::span<const BlockId> zero_blocks;
    std::span<const std::byte> payload;
    std::span<const std::int64_t> words;  // and payload is what follows them
  };
  Taken take();
  // What this one has allocated, for rank 0.
  void tell_memory(std::int64_t bytes);
  std::int64_t memory_of(int rank) const;
  // Where all of them put what rank 0 reads.
  std::span<std::byte> answer() const;

 private:
  // Both in shared memory.
  struct Counts {
    SharedFate fate;
    SharedCount posted;
    SharedCount taken[64];  // by rank: messages that it is done with
    std::atomic<std::int64_t> memory_bytes[64];
  };

  // The payload in two parts.
  void post(const RankMessage& message, std::span<const std::byte> zero_blocks,
            std::span<const std::byte> payload, std::span<const std::byte> rest = {});
  void post_bytes(RankMessage::Kind kind, RankBytes bytes, std::span<const std::int64_t> words,
                  std::span<const std::byte> rest);
  std::byte* slot(std::uint32_t message) const;

  Counts& memory_;
  std::byte* const slots_;
  const int rank_, size_;
  std::uint32_t num_messages_ = 0;  // posted, or taken
};

}  // namespace quire
