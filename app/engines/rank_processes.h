#pragma once
// The ranks of a tensor-parallel engine beside its own, each a process that this one starts: `quire
// rank`, which finds the memory that they share by the number of its descriptor. None outlives this
// one. On GPUs each has a device of its own. One that ends, ends the engine: what was computed with
// it cannot go on without. So does one that gives no sign of life for ten seconds, as where its
// process is stopped.

#include <memory>

#include "engine/core/engine_backend.h"
#include "engine/core/rank_group.h"

namespace quire {

struct RankOptions {
  int size = 2;  // with this process
  DeviceKind kind = DeviceKind::cpu;
  int first_device = 0;  // this process's; the others' follow
};
// Throws Failure where they cannot be started. What they do together takes its memory from this
// process's device.
std::unique_ptr<RankGroup> start_ranks(const RankOptions& options, Device& device);

// `quire rank`: what start_ranks() runs.
int rank_main(int argc, const char* const* argv);

}  // namespace quire
