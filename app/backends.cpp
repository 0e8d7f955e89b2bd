#include "app/backends.h"

#include "cpu/cpu_backend.h"

namespace quire {

EngineBackend make_backend(const EngineConfig& config) {
  if (config.device == DeviceKind::cuda) {
    throw Failure(
        {ErrorCode::unsupported, "--device cuda: this binary was built without CUDA", "--device"});
  }
  return {DeviceKind::cpu, make_cpu_device(), make_cpu_ops({.threads = config.cpu_threads})};
}

}  // namespace quire
