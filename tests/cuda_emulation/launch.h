#pragma once
// What a device refuses of a launch.

#include <cuda_runtime.h>

#include "core.h"

namespace emulation {

// An error is remembered for cudaGetLastError. How much static shared memory a kernel has shows
// only when it runs: run() checks that.
cudaError_t check_launch(const cudaLaunchConfig_t& config, const void* kernel, LaunchShape& shape);

}  // namespace emulation
