// DraftRunner: graphs of the passes behind the first.

#include "engine/runner/draft_runner.h"

namespace quire {

// Where somebody wants all that there can be; others are padding where they want no more.
GraphShape DraftRunner::graph_shape() const {
  if (order_.empty() || order_.front()->num_wanted < limits_.max_drafts || observer_) return {};
  return graphs_.shape_for(static_cast<int>(order_.size()), limits_.max_drafts);
}

// A row that reads the null block and keeps nothing.
void DraftRunner::fill_padding(Pass& pass, int row) {
  pass.positions.host[row] = 0;
  pass.query_start.host[row + 1] = row + 1;
  pass.seq_lens.host[row] = 1;
  pass.slots.host[row] = kPaddingRow;
  for (int t = 0; t < batch_.num_tables(); ++t) pass.counts.host[t * pass.num_rows + row] = 0;
  pass.max_query_len = 1;
  pass.max_seq_len = std::max(pass.max_seq_len, 1);
}

// Runs once before it is captured, as a step's graphs do.
bool DraftRunner::capture(int num_rows, Workspace& workspace) {
  const Workspace::Scope scope(workspace);
  const StreamRef stream = device_.stream();
  lines_.clear();
  order_.clear();
  pack_.begin();
  add_steps({.num_drafts = limits_.max_drafts, .num_rows = num_rows});
  pack_.upload(stream);
  device_.zero(step_states_[0].data(), step_states_[0].bytes(), stream);
  device_.zero(batch_.drafts().data(), batch_.drafts().bytes(), stream);
  compute_steps(workspace);
  // survives deletion: the next size but one refills this one's pack; padding is always the same
  device_.synchronize(stream);
  auto graph = device_.capture([&] { compute_steps(workspace); });
  if (graph == nullptr) return false;
  graphs_.add({.num_drafts = limits_.max_drafts, .num_rows = num_rows}, std::move(graph));
  return true;
}

}  // namespace quire
