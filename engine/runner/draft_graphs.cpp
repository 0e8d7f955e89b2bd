// DraftRunner: graphs of the passes behind the first.

#include "engine/runner/draft_runner.h"

namespace quire {

// Where somebody wants all that there can be; others are padding where they want no more.
GraphShape DraftRunner::graph_shape() const {
  if (order_.empty() || order_.front()->num_wanted < limits_.max_drafts || observer_) return {};
  return graphs_.shape_for(static_cast<int>(order_.size()), limits_.max_drafts);
}

// Where each row verified as many drafts as there can be, and somebody wants as many again.
GraphShape DraftRunner::whole_shape(const BatchPlan& plan) const {
  const int most = limits_.max_drafts;
  const auto is_open = [&](const Line& line) { return line.num_open == most; };
  if (!runs_ahead_ || order_.empty() || order_.front()->num_wanted < most ||
      lines_.size() != plan.rows.size() || !std::ranges::all_of(lines_, is_open) ||
      plan.num_tokens != static_cast<int>(lines_.size()) * (1 + most))
    return {};
  return whole_graphs_.shape_for(static_cast<int>(lines_.size()), most);
}

// A row that reads the null block and keeps nothing.
void DraftRunner::fill_padding(Pass& pass, int row, int num_tokens) {
  const int first = pass.query_start.host[row];
  for (int i = 0; i < num_tokens; ++i) pass.positions.host[first + i] = i;
  pass.query_start.host[row + 1] = first + num_tokens;
  pass.seq_lens.host[row] = num_tokens;
  pass.slots.host[row] = kPaddingRow;
  for (int t = 0; t < batch_.num_tables(); ++t) pass.counts.host[t * pass.num_rows + row] = 0;
  pass.max_query_len = std::max(pass.max_query_len, num_tokens);
  pass.max_seq_len = std::max(pass.max_seq_len, num_tokens);
}

// Runs once before it is captured, as a step's graphs do.
bool DraftRunner::capture(int num_rows, Workspace& workspace) {
  const Workspace::Scope scope(workspace);
  const StreamRef stream = device_.stream();
  lines_.clear();
  order_.clear();
  runs_ahead_ = false;
  pack_.begin();
  add_steps({.num_drafts = limits_.max_drafts, .num_rows = num_rows});
  pack_.upload(stream);
  device_.zero(step_states_[0].data(), step_states_[0].bytes(), stream);
  device_.zero(batch_.drafts().data(), batch_.drafts().bytes(), stream);
  compute_steps(workspace);
  // survives deletion: a later size refills this one's pack; padding is always the same
  device_.synchronize(stream);
  auto graph = device_.capture([&] { compute_steps(workspace); });
  if (graph == nullptr) return false;
  graphs_.add({.num_drafts = limits_.max_drafts, .num_rows = num_rows}, std::move(graph));
  return true;
}

bool DraftRunner::capture_all(int num_rows, TensorView final_norm, Workspace& workspace) {
  const Workspace::Scope scope(workspace);
  const StreamRef stream = device_.stream();
  const GraphShape shape{.num_drafts = limits_.max_drafts, .num_rows = num_rows};
  const auto num_tokens = static_cast<int>(final_norm.extent(0));
  lines_.clear();
  order_.clear();
  runs_ahead_ = true;
  pack_.begin();
  add_steps(shape);
  add_first_pass(shape);
  add_settling();
  pack_.upload(stream);
  device_.zero(streams_.data(), streams_.bytes(), stream);
  device_.zero(batch_.drafts().data(), batch_.drafts().bytes(), stream);
  const auto compute_all = [&] {
    compute_first(num_tokens, final_norm, true, workspace);
    compute_steps(workspace);
  };
  compute_all();
  // survives deletion: a later size refills this one's pack; padding is always the same
  device_.synchronize(stream);
  auto graph = device_.capture(compute_all);
  if (graph == nullptr) return false;
  whole_graphs_.add(shape, std::move(graph));
  return true;
}

}  // namespace quire
