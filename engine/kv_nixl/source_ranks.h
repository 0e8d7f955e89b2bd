#pragma once
// Of two servers that share a model's heads and states among other numbers of ranks: which ranks of
// the one hold what a rank of the other needs, and where in their blocks it lies. vLLM's rule.
// Pure.

#include <cstdint>
#include <optional>
#include <vector>

namespace quire {

struct RankPair {
  int local_ranks = 1;
  int local_rank = 0;
  int remote_ranks = 1;
  int kv_heads = 0;          // of the model
  bool has_latents = false;  // every rank has them whole
};

// How many ranks here share one there; negative: how many there share one here. Empty: neither
// number divides the other.
std::optional<int> rank_ratio(const RankPair& pair);

struct SourceRanks {
  int ratio = 1;
  std::vector<int> asked = {};      // those to be told when all is read
  std::vector<int> attention = {};  // each holds other heads
  std::vector<int> states = {};     // each holds another part
  // Where a block here begins in one there that holds more: in blocks of here.
  int head_offset = 0;
  int state_offset = 0;

  // Which of the equal parts of a block here holds the heads of that rank.
  int attention_slot(int rank) const;
};
// Throws where there is no ratio.
SourceRanks source_ranks(const RankPair& pair);

// Bytes of a block there, and where they belong in the block here.
struct BlockCopy {
  std::int64_t remote = 0, local = 0, bytes = 0;
};

// Of keys and values, from one of SourceRanks::attention. parts: 2 where a block is all keys and
// then all values, 1 where each head's are together.
std::vector<BlockCopy> attention_copies(const SourceRanks& sources, int rank,
                                        std::int64_t local_bytes, std::int64_t remote_bytes,
                                        int parts);

// A state as vLLM lays it out: the convolution's channels, in three projections, then the rest.
struct StateBytes {
  std::vector<std::int64_t> projections = {};
  std::int64_t rest = 0;
  std::int64_t conv() const;
};
// What a rank there has, if a rank here has `local`.
StateBytes remote_state(const StateBytes& local, int ratio);
// From one of SourceRanks::states; `local` is of a rank here.
std::vector<BlockCopy> state_copies(const SourceRanks& sources, int rank, const StateBytes& local);

// Channels of the projections of one rank: of Mamba 2 x, B and C, of a gated delta net queries,
// keys and values. values: heads × their size. Empty: the channels do not come apart so.
enum class StateKind : std::uint8_t { mamba2, delta_net };
std::vector<std::int64_t> projection_channels(StateKind kind, std::int64_t channels,
                                              std::int64_t values);

// How many kernel blocks a state fills.
std::int64_t blocks_of_state(const StateBytes& state, std::int64_t block_bytes);

}  // namespace quire
