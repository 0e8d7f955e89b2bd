#pragma once
// Decode steps recorded as graphs, one per batch size; a step of fewer rows is padded to the next
// size. Which sizes a model gets on a backend is decided once, at start-up. Engine thread only.

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
  std::string why_none = {};
};

// Of what the groups' operators support, the least counts. Refuses sizes that this model cannot
// have.
Result<CaptureSizes> capture_sizes(const GraphConfig& config, int max_num_seqs,
                                   const OpsTraits& ops, const std::vector<KvGroup>& groups);

// 1, 2, 4, then in steps of 8, from 256 on in steps of 16; the last is max_num_seqs.
std::vector<int> default_capture_sizes(int max_num_seqs);

class GraphCache {
 public:
  void add(int size, std::unique_ptr<Graph> graph);  // sizes ascend

  // The smallest size that holds this many rows; 0: none does.
  int size_for(int num_rows) const;
  void replay(int size, StreamRef stream);
  long num_replays() const { return num_replays_; }

 private:
  auto find(int num_rows) const;

  std::vector<std::pair<int, std::unique_ptr<Graph>>> graphs_;
  long num_replays_ = 0;
};

}  // namespace quire
