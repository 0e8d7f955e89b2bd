#pragma once
// Makes layers alike, so that they fit one pool.

#include <vector>

#include "engine/kv_plan/plan_error.h"
#include "model/kv_spec.h"

namespace quire {

// One block table can serve all: equal block sizes, and kinds that allocate and free alike.
bool is_uniform_type(const std::vector<LayerKvSpec>& layers);

// Hybrid manager off: windowed and chunked layers keep every token like the full ones.
PlanResult<std::vector<LayerKvSpec>> unify_kinds(std::vector<LayerKvSpec> layers);

}  // namespace quire
