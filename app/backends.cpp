#include "app/backends.h"

#include <cassert>
#include <string>

#include "app/rank_processes.h"
#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "cuda/cuda_backend.h"
#include "engine/core/engine_plan.h"

namespace quire {
Result<DeviceChoice> choose_device(DeviceKind asked) {
  if (asked == DeviceKind::cpu) return DeviceChoice{};
  if (asked == DeviceKind::mock)
    return Error{ErrorCode::invalid_argument, "--device mock is of quire serve alone", "--device"};
  std::string why_not = cuda_unavailable();
  if (why_not.empty()) return DeviceChoice{.kind = DeviceKind::cuda};
  if (asked == DeviceKind::automatic) return DeviceChoice{.why_not_cuda = std::move(why_not)};
  return Error{ErrorCode::unavailable, "--device cuda: " + why_not, "--device"};
}

std::unique_ptr<Device> make_device(DeviceKind kind, int index) {
  assert(kind != DeviceKind::automatic);
  return kind == DeviceKind::cuda ? make_cuda_device({.device = index}) : make_cpu_device();
}

const OpsTraits& ops_traits(DeviceKind kind) {
  assert(kind != DeviceKind::automatic);
  return kind == DeviceKind::cuda ? cuda_traits() : cpu_traits();
}

EngineBackend make_backend(const EngineConfig& config, int index,
                           CompileConstraint compile_constraint) {
  // Planned for GPUs, but run on none yet.
  if (config.device == DeviceKind::cuda && config.parallel.tensor_parallel_size > 1)
    throw Failure(Error{ErrorCode::unsupported,
                        "ParallelConfig::tensor_parallel_size " +
                            std::to_string(config.parallel.tensor_parallel_size) +
                            " does not work with EngineConfig::device cuda, where a model runs "
                            "whole on one device; use 1",
                        "ParallelConfig::tensor_parallel_size"});
  EngineBackend backend{.kind = config.device,
                        .device = make_device(config.device, index),
                        .ops = nullptr,
                        .compile_constraint = std::move(compile_constraint)};
  backend.ops = config.device == DeviceKind::cuda
                    ? make_cuda_ops(*backend.device)
                    : make_cpu_ops({.threads = threads_of_engine(config, available_cores())});
  if (const int ranks = config.parallel.tensor_parallel_size; ranks > 1)
    backend.ranks = start_ranks(ranks);
  return backend;
}

EngineBackend make_rank_backend(const EngineConfig& config) {
  return {.kind = DeviceKind::cpu,
          .device = make_device(DeviceKind::cpu, 0),
          .ops = make_cpu_ops({.threads = threads_of_engine(config, available_cores())})};
}

}  // namespace quire
