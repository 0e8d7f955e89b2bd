#pragma once
// 10 · major + minor of the current device's compute capability: 90 for H100 and H200.

#include "cuda/runtime/check.h"

namespace quire::cuda {

inline int compute_capability() {
  static const int capability = [] {
    int device = 0, major = 0, minor = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    return 10 * major + minor;
  }();
  return capability;
}

}  // namespace quire::cuda
