#pragma once
// Log-probabilities of the sampled rows that ask for them: of the logits as the model gave them,
// before bias and penalties, as in vLLM. Engine thread only.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/ops.h"
#include "backend/staged_pack.h"

namespace quire {

// On the host: the k best of each row that asked, and the chosen.
struct LogprobRows {
  int k = 0;
  std::span<const std::int32_t> top_ids;  // [rows, k]
  std::span<const float> top_values;      // [rows, k]
  std::span<const float> chosen_values;   // [rows]
  std::span<const std::int32_t> ranks;    // [rows], 1 = most probable
  std::span<const std::int32_t> row_of;   // by sampled row: its row here, −1: did not ask
};

// What Ops::log_probs() fills, side by side: ids [n, k], values [n, k], chosen values [n], ranks
// [n]; all four bytes wide.
struct LogprobArrays {
  std::int64_t n = 0, k = 0;

  std::size_t bytes() const { return static_cast<std::size_t>(2 * n * k + 2 * n) * 4; }
  // The most that num_rows rows take.
  static LogprobArrays largest(int num_rows, int vocab_size);
  void compute(Ops& ops, void* memory, TensorView logits, TensorView tokens,
               StreamRef stream) const;
  // memory, once on the host; without row_of.
  LogprobRows rows(const void* memory) const;
};

class StepLogprobs {
 public:
  StepLogprobs(Device& device, Ops& ops, int max_num_seqs, int vocab_size);

  void begin_step();
  void add_row(int row, int asked);  // the `asked` best
  bool empty() const { return asking_.empty(); }

  // Queued: copies the rows that ask, before anything changes them.
  void keep(TensorView logits, StreamRef stream);
  // Of tokens i32 [S]; results are there when the stream has got so far.
  void compute(TensorView tokens, int turn, StreamRef stream);

  void forget(int turn) { results_[turn].rows = {}; }
  const LogprobRows& rows(int turn) const { return results_[turn].rows; }

 private:
  struct Result {
    Buffer on_device;
    Buffer on_host;
    std::vector<std::int32_t> row_of;
    LogprobRows rows;
  };

  Device& device_;
  Ops& ops_;
  const int vocab_size_;
  std::vector<std::int32_t> asking_;  // sampled rows
  int k_ = 0;
  StagedPack pack_;
  TensorView rows_;       // asking_, on the device
  Buffer raw_logits_;     // f32 [rows that ask, V]
  Buffer chosen_tokens_;  // i32 [rows that ask]
  std::array<Result, 2> results_;
};

}  // namespace quire
