// InputBatch: rows that begin with the same blocks, which attention reads once for all of them.

#include <algorithm>

#include "engine/runner/input_batch.h"

namespace quire {

void InputBatch::add_shared(int num_rows, int num_tokens) {
  const auto ints = [&](std::size_t count) { return pack_.add<std::int32_t>(count); };
  const int members = std::min(num_tokens, num_rows * (1 + limits_.max_drafts));
  shared_.starts = ints(kMostPrefixes + 1);
  shared_.members = ints(static_cast<std::size_t>(members));
  shared_.places = ints(static_cast<std::size_t>(num_rows));
  shared_.lengths = ints(static_cast<std::size_t>(num_rows));
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].shares_prefixes)
      group_inputs_[g].shared = {.starts = shared_.starts.device,
                                 .members = shared_.members.device,
                                 .places = shared_.places.device,
                                 .lengths = shared_.lengths.device};
  }
}

// In a graph the host's number is that of its capture. Of a mixed step it is the least there can be:
// rows of more tokens than attention reads a prefix once for are in no group.
void InputBatch::fill_shared(const BatchPlan& plan, const GraphShape& graph) {
  std::ranges::fill(shared_.lengths.host, 0);
  std::ranges::fill(shared_.places.host, -1);
  std::int32_t member = 0, longest = graph.num_rows > 0 ? 1 + graph.num_drafts : 0;
  for (std::size_t i = 0; i <= kMostPrefixes; ++i) {
    shared_.starts.host[i] = member;
    if (i >= plan.shared_prefixes.size()) continue;
    for (const std::int32_t r : plan.rows_of(plan.shared_prefixes[i])) {
      const std::int32_t tokens = plan.rows[static_cast<std::size_t>(r)].num_tokens;
      shared_.places.host[r] = member;
      shared_.lengths.host[r] = plan.shared_prefixes[i].num_tokens;
      std::ranges::fill(shared_.members.host.subspan(member, tokens), r);
      member += tokens;
      longest = std::max(longest, tokens);
    }
  }
  set_longest_shared(longest);
}

void InputBatch::set_longest_shared(int num_tokens) {
  longest_shared_ = num_tokens;
  for (std::size_t g = 0; g < groups_.size(); ++g)
    if (groups_[g].shares_prefixes) group_inputs_[g].shared.longest = num_tokens;
}

}  // namespace quire
