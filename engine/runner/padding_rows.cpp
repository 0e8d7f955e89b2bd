// InputBatch: what of a graph's arrays no request fills.

#include <algorithm>
#include <functional>
#include <numeric>

#include "engine/runner/input_batch.h"

namespace quire {

int InputBatch::padded_tokens(const BatchPlan& plan, const GraphShape& graph) {
  if (graph.is_mixed()) return graph.num_tokens;
  const int missing = graph.num_rows - static_cast<int>(plan.rows.size());
  return plan.num_tokens + std::max(missing, 0) * (1 + graph.num_drafts);
}

int InputBatch::padded_drafts(const BatchPlan& plan, const GraphShape& graph) const {
  if (graph.is_mixed()) return limits_.max_samples();  // whatever it has: arrays have their places
  if (graph.num_rows > 0) return graph.num_rows * graph.num_drafts;
  // Among the plan's drafts may be those of rows that left it.
  return std::transform_reduce(plan.rows.begin(), plan.rows.end(), 0, std::plus<>(),
                               [](const BatchRow& row) { return row.num_drafts; });
}

void InputBatch::fill_padding(const GraphShape& graph, int first_row, int first_token) {
  int first = first_token;
  for (int r = first_row; r < graph.num_rows; ++r) {
    const bool takes_rest = r + 1 == graph.num_rows;
    const int length = !graph.is_mixed() ? 1 + graph.num_drafts
                       : takes_rest      ? graph.num_tokens - first
                                         : 0;
    add_padding_row(r, first, length);
    first += length;
  }
}

void InputBatch::add_padding_row(int row, int first, int length) {
  const std::int32_t ids = pack_.index_of(arrays_.ids);
  arrays_.query_start.host[row + 1] = first + length;
  arrays_.seq_lens.host[row] = length;
  arrays_.slots.host[row] = kPaddingRow;
  for (int g = 0; g < tables_.num_groups(); ++g) arrays_.counts.host[g * num_rows_ + row] = 0;
  for (int token = first; token < first + length; ++token) {
    arrays_.ids.host[token] = 0;
    arrays_.id_index.host[token] = ids + token;
    arrays_.positions.host[token] = token - first;
  }
  inputs_.max_query_len = std::max(inputs_.max_query_len, length);
  inputs_.max_seq_len = std::max(inputs_.max_seq_len, length);
}

}  // namespace quire
