#pragma once
// Steps recorded as graphs: decode steps, one per batch size and number of drafts that each row
// verifies, to their logits; and steps with prompts, one per number of tokens, to their hidden
// states. A step of fewer rows or tokens is padded to the next size. Which sizes a model gets on a
// backend is decided once, at start-up. Engine thread only.

#include <compare>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/ops.h"
#include "engine/config.h"
#include "engine/kv_plan/plan.h"

namespace quire {

// Rows for which decode steps are captured, ascending; empty: none are.
struct CaptureSizes {
  std::vector<int> sizes = {};
  std::vector<int> draft_sizes = {};  // where each row verifies as many drafts as there can be
  std::vector<int> mixed_sizes = {};  // tokens: of steps whose rows have any number
  bool keeps_faster = false;  // of the latter those alone that are faster than what they replace
  bool drafting = false;              // for `sizes`, a draft model's passes behind its first, too
  bool all_drafting = false;          // for `draft_sizes`, all of its passes
  std::string why_none = {};

  std::size_t count() const {
    return sizes.size() * (drafting ? 2 : 1) + draft_sizes.size() * (all_drafting ? 2 : 1) +
           mixed_sizes.size();
  }
};

// A step in which each row has one token and so many drafts, and draws behind each; or a draft
// model's passes that make so many for each, behind the first.
struct GraphShape {
  int num_tokens = 0;  // of a mixed step, whose rows have any number, or none; 0: it is none
  int num_drafts = 0;
  int num_rows = 0;  // 0: no graph
  bool is_mixed() const { return num_tokens > 0; }
  std::strong_ordering operator<=>(const GraphShape&) const = default;
};

// Limits of one step. No row of padding may be longer than a request.
struct GraphLimits {
  int max_num_seqs = 0;
  int max_tokens = 0;
};

// Chooses the sizes that the operators of all groups support. Refuses sizes that this model cannot
// have.
Result<CaptureSizes> capture_sizes(const GraphConfig& config, const GraphLimits& limits,
                                   const OpsTraits& ops, const std::vector<KvGroup>& groups);

// The graph of a mixed step has as many rows as tokens where there can be, up to kMostMixedRows,
// and one for the padding. Steps of more rows read more than launches take.
GraphShape mixed_shape(int num_tokens, int max_num_seqs);
inline constexpr int kMostMixedRows = 64;

// The sizes of capture_sizes() at which so many drafts of each row fit into a step; none where the
// groups' operators have no graphs for several tokens of a row.
std::vector<int> draft_capture_sizes(const std::vector<int>& sizes, int num_drafts,
                                     int max_num_batched_tokens, const OpsTraits& ops,
                                     const std::vector<KvGroup>& groups);

class GraphCache {
 public:
  // Shapes ascend. No graph: steps that would take one of this shape have none, though a larger one
  // be there.
  void add(const GraphShape& shape, std::unique_ptr<Graph> graph);

  // The smallest that holds this many rows of so many drafts each; no rows: none does.
  GraphShape shape_for(int num_rows, int num_drafts) const;
  // The smallest for a mixed step of so many rows and tokens.
  GraphShape mixed_shape_for(int num_rows, int num_tokens) const;
  std::vector<int> mixed_sizes() const;  // tokens of the mixed graphs that are there
  void replay(const GraphShape& shape, StreamRef stream);
  long num_replays() const { return num_replays_; }

 private:
  auto find(const GraphShape& shape) const;

  std::vector<std::pair<GraphShape, std::unique_ptr<Graph>>> graphs_;
  long num_replays_ = 0;
};

}  // namespace quire
