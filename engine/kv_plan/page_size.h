#pragma once
// Every block id of the pool must mean the same number of bytes in every group.

#include <vector>

#include "engine/kv_plan/plan_error.h"
#include "model/kv_spec.h"

namespace quire {

// Multiplies the block size of layers with small pages until all pages are as large as the largest.
PlanResult<std::vector<LayerKvSpec>> unify_page_sizes(std::vector<LayerKvSpec> layers);

}  // namespace quire
