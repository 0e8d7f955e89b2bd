#pragma once
// `quire plan MODEL [serve flags] [--memory SIZE] [--json]`: what serving would allocate, from
// config.json and the headers of the weight files alone.

#include "app/plan/report.h"

namespace quire {

// total_bytes 0: of this machine. Throws Failure where the model's files are wrong.
PlanReport make_plan_report(EngineConfig config, std::int64_t total_bytes);

// 0: it can be served; 1: it would be refused; 2: wrong flags or files.
int plan_main(int argc, const char* const* argv);

}  // namespace quire
