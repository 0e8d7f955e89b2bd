#pragma once
// What a device refuses of a launch.

#include <cuda_runtime.h>

#include <cstdint>

#include "core.h"

namespace emulation {

// Of kernels, since the program began; a graph's count when they are captured.
std::uint64_t num_launches();
// An error is remembered for cudaGetLastError. How much static shared memory a kernel has shows
// only when it runs: run() checks that.
cudaError_t check_launch(const cudaLaunchConfig_t& config, const void* kernel, LaunchShape& shape);

}  // namespace emulation
