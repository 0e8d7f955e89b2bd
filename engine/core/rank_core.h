#pragma once
// A rank other than 0 of a tensor-parallel engine: plans, loads and allocates its share as rank 0
// does its own, then follows. One thread.

#include <cstddef>

#include "backend/collectives.h"
#include "engine/core/engine_backend.h"
#include "engine/runner/rank_line.h"

namespace quire {

// Of the memory that ranks of a CPU share, what each of them brings for its sums: in its plan, and on
// its ledger, as MemoryPurpose::kernels.
inline constexpr std::size_t kSharedBytesOfRank = (std::size_t{2} << 20) + 64;

// Until the process ends; throws Failure for what keeps it from going on, which is in the line's
// fate too then, so that rank 0 says it.
[[noreturn]] void follow(RankLine& line, Collectives& collectives, const BackendFactory& backend);

}  // namespace quire
