#pragma once
// A rank other than 0 of a tensor-parallel engine: plans, loads and allocates its share as rank 0
// does its own, then follows. One thread.

#include <memory>

#include "backend/collectives.h"
#include "engine/core/engine_backend.h"
#include "engine/runner/rank_line.h"

namespace quire {

// Until the process ends; throws Failure for what keeps it from going on. `collectives` are on the
// ledger of the device that `backend` makes.
[[noreturn]] void follow(RankLine& line, std::unique_ptr<Collectives> collectives,
                         const BackendFactory& backend);

}  // namespace quire
