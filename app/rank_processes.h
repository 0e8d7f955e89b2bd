#pragma once
// The ranks of a tensor-parallel engine beside its own, each a process that this one starts: `quire
// rank`, which finds the memory that they share by the number of its descriptor. None outlives this
// one. One that ends, ends the engine: what was computed with it cannot go on without. So does one that
// gives no sign of life for ten seconds, as where its process is stopped.

#include <memory>

#include "engine/core/engine_backend.h"
#include "engine/core/rank_group.h"

namespace quire {

// Throws Failure where they cannot be started. `size` counts this process.
std::unique_ptr<RankGroup> start_ranks(int size);

// `quire rank`: what start_ranks() runs.
int rank_main(int argc, const char* const* argv);

}  // namespace quire
