#pragma once
// kv_plan/1 vectors: their JSON as the plan's input.

#include <simdjson.h>

#include "engine/kv_plan/plan.h"

namespace quire::test {

KvPlanInput plan_input(simdjson::dom::element vector_case);

// As the vectors spell a group's kind.
std::string kind_in_vectors(const KvGroup& group);

}  // namespace quire::test
