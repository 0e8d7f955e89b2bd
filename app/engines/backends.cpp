#include "app/engines/backends.h"

#include <cassert>
#include <cstdlib>
#include <string>

#include "app/engines/rank_processes.h"
#include "base/error.h"
#include "base/log.h"
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

namespace {

// Where what was measured on this machine is kept for the next start; empty: nowhere.
std::string cache_folder() {
  const auto environment = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string cache = environment("XDG_CACHE_HOME"); cache.starts_with('/'))
    return cache + "/quire";
  const std::string home = environment("HOME");
  return home.starts_with('/') ? home + "/.cache/quire" : "";
}

// `part`: which of all engines' ranks this is. Ranks have cores of their own, where there are
// enough for their threads: none of them can then wait for another's.
std::unique_ptr<Ops> make_ops(const EngineConfig& config, Device& device, int part) {
  if (config.device == DeviceKind::cuda) {
    if (const std::string lacks = cuda_lacks(); !lacks.empty())
      log::warn("engine.slower_kernels", {{"because", lacks}});
    return make_cuda_ops(device,
                         {.choices_folder = cache_folder(), .report = [](const std::string& text) {
                            log::info("engine.products", {{"note", text}});
                          }});
  }
  const ParallelConfig& parallel = config.parallel;
  const int threads = threads_of_engine(config, available_cores());
  const int parts = parallel.data_parallel_size * parallel.tensor_parallel_size;
  if (parallel.tensor_parallel_size > 1 && threads <= available_cores() / parts)
    use_cores_of_part(part % parts, parts);
  return make_cpu_ops({.threads = threads});
}

// One device each, the engine's own and those behind it.
void check_devices(int ranks, int first) {
  const auto refuse = [ranks](const std::string& why) {
    throw Failure(
        Error{ErrorCode::unsupported,
              "ParallelConfig::tensor_parallel_size " + std::to_string(ranks) + ": " + why,
              "ParallelConfig::tensor_parallel_size"});
  };
  if (const std::string why = cuda_ranks_unavailable(); !why.empty()) refuse(why);
  if (const int devices = num_cuda_devices(); first + ranks > devices)
    refuse("ranks need a CUDA device each, " + std::to_string(first) + " to " +
           std::to_string(first + ranks - 1) + ", and there are " + std::to_string(devices));
}

}  // namespace

EngineBackend make_backend(const EngineConfig& config, int index,
                           CompileConstraint compile_constraint) {
  const RankOptions ranks{
      .size = config.parallel.tensor_parallel_size, .kind = config.device, .first_device = index};
  if (ranks.size > 1 && ranks.kind == DeviceKind::cuda) check_devices(ranks.size, index);
  EngineBackend backend{.kind = config.device,
                        .device = make_device(config.device, index),
                        .ops = nullptr,
                        .compile_constraint = std::move(compile_constraint)};
  // Before this thread is bound to its cores, as those that they inherit.
  if (ranks.size > 1) backend.ranks = start_ranks(ranks, *backend.device);
  backend.ops = make_ops(config, *backend.device, index);
  return backend;
}

EngineBackend make_rank_backend(const EngineConfig& config, std::unique_ptr<Device> device,
                                int part) {
  EngineBackend backend{.kind = config.device, .device = std::move(device), .ops = nullptr};
  backend.ops = make_ops(config, *backend.device, part);
  return backend;
}

}  // namespace quire
