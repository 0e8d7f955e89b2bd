#pragma once
// The CUDA backend of an engine; emulated, where quire::cuda_emulated is linked.

#include "cuda/cuda_backend.h"
#include "engine/core/engine_core.h"

namespace quire::test {

inline EngineBackend emulated_backend(const EngineConfig& = {}) {
  EngineBackend backend{.kind = DeviceKind::cuda, .device = make_cuda_device({}), .ops = nullptr};
  backend.ops = make_cuda_ops(*backend.device);
  return backend;
}

}  // namespace quire::test
