#pragma once
// --device → the device and operators that it names. The one place that knows which there are; a
// program links it with CUDA, without, or with CUDA emulated.

#include <memory>
#include <string>

#include "base/result.h"
#include "engine/core/engine_backend.h"

namespace quire {

struct DeviceChoice {
  DeviceKind kind = DeviceKind::cpu;  // not automatic
  std::string why_not_cuda = {};      // where automatic became the CPU
};

// What --device means on this machine; automatic is a GPU where this binary has CUDA and the
// machine one. Refuses what cannot be used, saying why.
Result<DeviceChoice> choose_device(DeviceKind asked);

// kind is not automatic; index counts GPUs. Throws Failure where there is no such device.
std::unique_ptr<Device> make_device(DeviceKind kind, int index);
// What the operators of such a device support, whether this machine has one or not.
const OpsTraits& ops_traits(DeviceKind kind);
// Makes the backend of config.device, which is not automatic, and starts the ranks that the
// configuration asks for. On GPUs the first rank has device `index`, the others the next ones.
EngineBackend make_backend(const EngineConfig& config, int index,
                           CompileConstraint compile_constraint = {});
// Makes the backend of one of those ranks, on its device.
// `part`: its number among the ranks of all engines.
EngineBackend make_rank_backend(const EngineConfig& config, std::unique_ptr<Device> device,
                                int part);

}  // namespace quire
