#pragma once
// The CUDA backend's factories; app/ and the tests are their only callers. No CUDA header in here.

#include <memory>
#include <string>

#include "backend/device.h"
#include "backend/ops.h"

namespace quire {

struct CudaOptions {
  int device = 0;
};

// Why there is no CUDA device to use (no driver, no device, no cuBLASLt), in one sentence; empty
// when there is one.
std::string cuda_unavailable();

// Throws Failure when the device cannot be used. Ops live no longer than the device.
std::unique_ptr<Device> make_cuda_device(const CudaOptions& options);
std::unique_ptr<Ops> make_cuda_ops(Device& device);
// Of these operators, on machines without CUDA too.
const OpsTraits& cuda_traits();

}  // namespace quire
