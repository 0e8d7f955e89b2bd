#include "engine/runner/prompt_logprobs.h"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

namespace quire {
namespace {

void reserve(Buffer& buffer, std::size_t bytes, Device& device) {
  if (bytes > buffer.bytes()) buffer = device.allocate(bytes);
}

}  // namespace

int PromptLogprobs::num_wanted(const Request& request, int num_computed, int num_tokens) {
  // With an output there, the prompt is only computed again, after a preemption.
  if (!request.sampling().prompt_logprobs || request.num_output() > 0) return 0;
  return std::clamp(request.num_prompt() - 1 - num_computed, 0, num_tokens);
}

void PromptLogprobs::add(const Request& request, int position, TensorView logits,
                         StreamRef stream) {
  const std::int64_t n = logits.extent(0);
  const int asked = *request.sampling().prompt_logprobs;
  const std::int64_t vocab = logits.extent(1);
  const std::int64_t k = asked < 0 ? vocab : std::clamp<std::int64_t>(asked, 1, vocab);
  const auto cells = static_cast<std::size_t>(n * k);
  const auto rows = static_cast<std::size_t>(n);
  reserve(chosen_, rows * 4, device_);
  reserve(results_, (2 * cells + 2 * rows) * 4, device_);
  device_.copy(chosen_.data(), request.prompt().data() + position + 1, rows * 4, stream);

  auto* base = static_cast<float*>(results_.data());
  ops_.log_probs(TensorView(base, DType::i32, {n, k}), TensorView(base + cells, DType::f32, {n, k}),
                 TensorView(base + 2 * cells, DType::f32, {n}),
                 TensorView(base + 2 * cells + rows, DType::i32, {n}), logits,
                 TensorView(chosen_.data(), DType::i32, {n}), stream);
  std::vector<std::int32_t> words(2 * cells + 2 * rows);
  device_.copy(words.data(), base, words.size() * 4, stream);
  device_.synchronize(stream);

  const auto value = [&](std::size_t at) { return std::bit_cast<float>(words[at]); };
  const auto count = static_cast<std::size_t>(asked < 0 ? k : std::min<std::int64_t>(asked, k));
  auto& positions = positions_[request.id()];
  positions.resize(static_cast<std::size_t>(request.num_prompt()) - 1);
  for (std::size_t i = 0; i < rows; ++i) {
    PromptPosition& one = positions[static_cast<std::size_t>(position) + i];
    one = {.chosen = value(2 * cells + i), .rank = words[2 * cells + rows + i]};
    const auto first = i * static_cast<std::size_t>(k);
    for (std::size_t j = 0; j < count; ++j) {
      one.top_ids.push_back(words[first + j]);
      one.top_values.push_back(value(cells + first + j));
    }
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
