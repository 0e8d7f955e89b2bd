#include "engine/runner/prompt_logprobs.h"

#include <algorithm>
#include <utility>

#include "engine/sampling/step_logprobs.h"

namespace quire {

PromptLogprobs::PromptLogprobs(Device& device, Ops& ops, int max_rows, int vocab_size)
    : device_(device),
      ops_(ops),
      chosen_(device.allocate(max_rows * sizeof(std::int32_t), MemoryPurpose::sampling)),
      results_(device.allocate(LogprobArrays::largest(max_rows, vocab_size).bytes(),
                               MemoryPurpose::sampling)) {}

int PromptLogprobs::num_wanted(const Request& request, int num_computed, int num_tokens) {
  // With an output there, the prompt is only computed again, after a preemption.
  if (!request.sampling().prompt_logprobs || request.num_output() > 0) return 0;
  return std::clamp(request.num_prompt() - 1 - num_computed, 0, num_tokens);
}

void PromptLogprobs::add(const Request& request, int position, TensorView logits,
                         StreamRef stream) {
  const int asked = *request.sampling().prompt_logprobs;
  const LogprobArrays arrays{.n = logits.extent(0),
                             .k = std::clamp<std::int64_t>(asked, 1, logits.extent(1))};
  const TensorView chosen(chosen_.data(), DType::i32, {arrays.n});
  device_.copy(chosen.data(), request.prompt().data() + position + 1, chosen.bytes(), stream);
  arrays.compute(ops_, results_.data(), logits, chosen, stream);
  std::vector<std::int32_t> words(arrays.bytes() / sizeof(std::int32_t));
  device_.copy(words.data(), results_.data(), arrays.bytes(), stream);
  // survives deletion: CUDA itself waits where the target is pageable; Device does not promise it
  device_.synchronize(stream);

  const LogprobRows rows = arrays.rows(words.data());
  const auto count = std::min(asked, rows.k);
  auto& positions = positions_[request.id()];
  positions.resize(static_cast<std::size_t>(request.num_prompt()) - 1);
  for (std::int64_t i = 0; i < arrays.n; ++i) {
    const auto row = static_cast<std::size_t>(i), first = row * static_cast<std::size_t>(rows.k);
    positions[static_cast<std::size_t>(position) + row] = {
        .chosen = rows.chosen_values[row],
        .rank = rows.ranks[row],
        .top_ids = {&rows.top_ids[first], &rows.top_ids[first] + count},
        .top_values = {&rows.top_values[first], &rows.top_values[first] + count}};
  }
}

std::vector<PromptPosition> PromptLogprobs::take(RequestId id) {
  const auto found = positions_.find(id);
  if (found == positions_.end()) return {};
  auto positions = std::move(found->second);
  positions_.erase(found);
  return positions;
}

}  // namespace quire
