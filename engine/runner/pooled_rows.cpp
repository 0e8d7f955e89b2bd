// ModelRunner: steps that end with vectors instead of tokens.

#include <cassert>

#include "engine/runner/model_runner.h"
#include "model/pooler.h"

namespace quire {

// The last token's row is gathered on the device; any other pooling reads all rows of a prompt.
int ModelRunner::num_pooled_rows() const {
  return *options_.pooling == PoolingType::last ? options_.limits.max_samples()
                                                : options_.limits.max_num_batched_tokens;
}

void ModelRunner::take_hidden(const BatchPlan& plan, InFlight& step, const StepInputs& inputs) {
  const int n = inputs.num_samples;
  if (n == 0) return;
  const StreamRef stream = device_.stream();
  TensorView rows = hidden(plan.num_tokens);
  if (*options_.pooling == PoolingType::last) {
    rows = TensorView(sampled_hidden_.data(), model_.dtype(), {n, model_.hidden_size()});
    ops_.gather_rows(rows, hidden(plan.num_tokens), inputs.sample_rows, stream);
  }
  device_.copy(step.pooled.data(), rows.data(), rows.bytes(), stream);
}

// Of the step's plan, in the order of its rows.
void ModelRunner::pool(const InFlight& step) {
  const PoolingType type = *options_.pooling;
  const int width = model_.hidden_size();
  const std::size_t row_bytes = size_of(model_.dtype()) * static_cast<std::size_t>(width);
  collected_pooled_.resize(static_cast<std::size_t>(step.num_samples) * width);
  const auto* from = static_cast<const std::byte*>(step.pooled.data());
  for (std::size_t r = 0; r < step.rows.size(); ++r) {
    const BatchRow& row = step.plan->rows[r];
    const int num_tokens = type == PoolingType::last ? (row.samples ? 1 : 0) : row.num_tokens;
    if (row.samples) {
      assert(type == PoolingType::last || row.num_computed == 0);
      const auto at = static_cast<std::size_t>(step.rows[r].sample) * width;
      pool_rows(type, model_.dtype(), from, num_tokens, width,
                std::span(collected_pooled_).subspan(at, static_cast<std::size_t>(width)));
    }
    from += row_bytes * static_cast<std::size_t>(num_tokens);
  }
}

std::span<const float> ModelRunner::pooled(int row) const {
  const auto width = static_cast<std::size_t>(model_.hidden_size());
  const auto sample = static_cast<std::size_t>(sample_of_row(row));
  return std::span(collected_pooled_).subspan(sample * width, width);
}

}  // namespace quire
