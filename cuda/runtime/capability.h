#pragma once
// What the current device is, asked once.

#include "cuda/runtime/check.h"
#include "cuda/runtime/variants.h"

namespace quire::cuda {

inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

// 10 · major + minor: 90 for H100 and H200.
inline int compute_capability() {
  static const int capability = 10 * device_attribute(cudaDevAttrComputeCapabilityMajor) +
                                device_attribute(cudaDevAttrComputeCapabilityMinor);
  return capability;
}

// Whether what only Hopper has is in this program and the device is one.
inline bool is_hopper() {
#ifdef QUIRE_SM90A
  return compute_capability() == 90;
#else
  return false;
#endif
}

// Whether kernels may use its warpgroups.
inline bool uses_warpgroups() { return is_hopper() && variants.warpgroups; }

inline int processor_count() {
  static const int count = device_attribute(cudaDevAttrMultiProcessorCount);
  return count;
}

// Bytes of shared memory, static and dynamic, that a block may have: 227 KiB on Hopper, 99 KiB on
// Ada.
inline std::size_t shared_memory_limit() {
  static const int bytes = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return static_cast<std::size_t>(bytes);
}

}  // namespace quire::cuda
