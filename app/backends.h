#pragma once
// Configuration → the device and operators that it names. The one place that knows which there are.

#include "engine/core/engine_backend.h"

namespace quire {

// As BackendFactory. "auto" is a GPU where this binary has CUDA and the machine one, else the CPU.
EngineBackend make_backend(const EngineConfig& config);

}  // namespace quire
