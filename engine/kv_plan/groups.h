#pragma once
// Layers into groups: the layers of a group share a block table, and all groups share one pool.

#include <span>
#include <string>
#include <vector>

#include "engine/kv_plan/plan_error.h"
#include "model/kv_spec.h"

namespace quire {

struct KvGroup {
  std::vector<std::string> layers;  // may be empty on a pipeline stage
  KvSpec spec;                      // of every layer, or of the first if per_layer_specs
  bool per_layer_specs = false;     // pages differ from layer to layer
  bool mixed_kinds = false;
  std::vector<KvSpec> layer_specs = {};  // as layers, if per_layer_specs
  int block_size = 0;                    // tokens
  int kernel_block_size = 0;             // tokens; state groups: block_size
  std::size_t page_bytes = 0;            // of one layer; of all layers if per_layer_specs
  bool is_eagle_group = false;

  const KvSpec& spec_of(std::size_t layer) const {
    return per_layer_specs ? layer_specs[layer] : spec;
  }
};

KvGroup uniform_group(std::vector<std::string> layers, const KvSpec& spec);
KvGroup per_layer_group(std::span<const LayerKvSpec> layers);

struct GroupingOptions {
  bool hybrid_manager = true;
  bool use_eagle = false;
};

// Groups in the order in which their layers first appear.
PlanResult<std::vector<KvGroup>> make_groups(std::vector<LayerKvSpec> layers,
                                             const GroupingOptions& options);

// The part of the groups whose layers this worker has; same number and order of groups.
std::vector<KvGroup> project_groups(const std::vector<KvGroup>& groups,
                                    std::span<const LayerKvSpec> worker_layers);

// Most blocks that one request holds at a time, over all groups.
std::int64_t blocks_per_request(const std::vector<KvGroup>& groups, const KvLimits& limits);

}  // namespace quire
