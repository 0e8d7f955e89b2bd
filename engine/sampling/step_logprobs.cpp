#include "engine/sampling/step_logprobs.h"

#include <algorithm>

#include "engine/request/sampling_params.h"

namespace quire {

LogprobArrays LogprobArrays::largest(int num_rows, int vocab_size) {
  return {.n = num_rows, .k = std::min(kMaxLogprobs, vocab_size)};
}

void LogprobArrays::compute(Ops& ops, void* memory, TensorView logits, TensorView tokens,
                            StreamRef stream) const {
  auto* base = static_cast<float*>(memory);
  ops.log_probs(TensorView(base, DType::i32, {n, k}), TensorView(base + n * k, DType::f32, {n, k}),
                TensorView(base + 2 * n * k, DType::f32, {n}),
                TensorView(base + 2 * n * k + n, DType::i32, {n}), logits, tokens, stream);
}

LogprobRows LogprobArrays::rows(const void* memory) const {
  const auto* ids = static_cast<const std::int32_t*>(memory);
  const auto* values = static_cast<const float*>(memory);
  const auto count = static_cast<std::size_t>(n), cells = static_cast<std::size_t>(n * k);
  return {.k = static_cast<int>(k),
          .top_ids = {ids, cells},
          .top_values = {values + cells, cells},
          .chosen_values = {values + 2 * cells, count},
          .ranks = {ids + 2 * cells + count, count},
          .row_of = {}};
}

StepLogprobs::StepLogprobs(Device& device, Ops& ops, int max_num_seqs, int vocab_size)
    : device_(device),
      ops_(ops),
      vocab_size_(vocab_size),
      pack_(device, MemoryPurpose::sampling, 0, StagedPack::bytes_of<std::int32_t>(max_num_seqs)),
      raw_logits_(
          device.allocate(static_cast<std::size_t>(max_num_seqs) * vocab_size * sizeof(float),
                          MemoryPurpose::logits)),
      chosen_tokens_(
          device.allocate(max_num_seqs * sizeof(std::int32_t), MemoryPurpose::sampling)) {
  const std::size_t bytes = LogprobArrays::largest(max_num_seqs, vocab_size).bytes();
  for (Result& result : results_) {
    result.on_device = device.allocate(bytes, MemoryPurpose::sampling);
    if (!device.is_host_memory())
      result.on_host = device.allocate_host(bytes, MemoryPurpose::sampling);
  }
}

void StepLogprobs::begin_step() {
  asking_.clear();
  k_ = 1;
}

void StepLogprobs::add_row(int row, int asked) {
  asking_.push_back(row);
  k_ = std::max(k_, std::min(asked, vocab_size_));
}

void StepLogprobs::keep(TensorView logits, StreamRef stream) {
  pack_.begin();
  const auto rows = pack_.add<std::int32_t>(asking_.size());
  std::ranges::copy(asking_, rows.host.begin());
  pack_.upload(stream);
  rows_ = rows.device;
  ops_.gather_rows(TensorView(raw_logits_.data(), DType::f32, {rows_.extent(0), vocab_size_}),
                   logits, rows_, stream);
}

void StepLogprobs::compute(TensorView tokens, int turn, StreamRef stream) {
  const LogprobArrays arrays{.n = rows_.extent(0), .k = k_};
  Result& result = results_[turn];
  const TensorView chosen(chosen_tokens_.data(), DType::i32, {arrays.n});
  ops_.gather_rows(chosen.reshape({arrays.n, 1}), tokens.reshape({tokens.extent(0), 1}), rows_,
                   stream);
  arrays.compute(ops_, result.on_device.data(),
                 TensorView(raw_logits_.data(), DType::f32, {arrays.n, vocab_size_}), chosen,
                 stream);
  const void* on_host = result.on_device.data();
  if (!device_.is_host_memory()) {
    device_.copy(result.on_host.data(), on_host, arrays.bytes(), stream);
    on_host = result.on_host.data();
  }
  result.row_of.assign(static_cast<std::size_t>(tokens.extent(0)), -1);
  for (std::size_t i = 0; i < asking_.size(); ++i)
    result.row_of[asking_[i]] = static_cast<std::int32_t>(i);
  result.rows = arrays.rows(on_host);
  result.rows.row_of = result.row_of;
}

}  // namespace quire
