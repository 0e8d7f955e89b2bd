#include "launch.h"

#include <algorithm>
#include <atomic>
#include <map>

#include "runtime.h"

namespace emulation {
namespace {

std::map<const void*, std::size_t> opted_in;  // by kernel
std::atomic<std::uint64_t> launches = 0;

bool is_cooperative(const cudaLaunchConfig_t& config) {
  return std::any_of(config.attrs, config.attrs + config.numAttrs, [](const auto& attribute) {
    return attribute.id == cudaLaunchAttributeCooperative && attribute.val.cooperative != 0;
  });
}
bool is_dependent(const cudaLaunchConfig_t& config) {
  return std::any_of(config.attrs, config.attrs + config.numAttrs, [](const auto& attribute) {
    return attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization &&
           attribute.val.programmaticStreamSerializationAllowed != 0;
  });
}

// Blocks that live at once, as far as threads and dynamic shared memory bound them.
std::uint64_t resident_blocks(const cudaLaunchConfig_t& config, std::uint64_t threads) {
  const Limits& l = limits();
  const std::uint64_t by_threads = l.threads_per_sm / ((threads + 31) / 32 * 32);
  const std::uint64_t by_shared = l.shared_per_sm / (config.dynamicSmemBytes + 1024);
  return l.sms * std::min({by_threads, by_shared, std::uint64_t(l.blocks_per_sm)});
}

}  // namespace

std::uint64_t num_launches() { return launches; }

cudaError_t check_launch(const cudaLaunchConfig_t& config, const void* kernel, LaunchShape& shape) {
  const dim3 grid = config.gridDim, block = config.blockDim;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  if (threads == 0 || threads > 1024 || block.z > 64 || blocks == 0 || grid.x > 0x7fffffffu ||
      grid.y > 65535 || grid.z > 65535)
    return failed(cudaErrorInvalidConfiguration);
  const auto opted = opted_in.find(kernel);
  const bool is_opted = opted != opted_in.end();
  if (config.dynamicSmemBytes > (is_opted ? opted->second : kSharedWithoutOptIn))
    return failed(cudaErrorInvalidValue);
  shape = {grid,
           block,
           config.dynamicSmemBytes,
           is_opted ? limits().shared_per_block : kSharedWithoutOptIn,
           is_cooperative(config),
           is_dependent(config)};
  if (shape.dependent && limits().capability < 90) return failed(cudaErrorNotSupported);
  if (shape.cooperative && blocks > resident_blocks(config, threads))
    return failed(cudaErrorCooperativeLaunchTooLarge);
  ++launches;
  return alive();
}

}  // namespace emulation

extern "C" cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  // What nvcc makes of the kernels is for 8.0 and later.
  if (emulation::limits().capability < 80)
    return emulation::failed(cudaErrorNoKernelImageForDevice);
  return emulation::alive();
}

extern "C" cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute,
                                            int value) {
  LOCK;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<std::size_t>(value) > emulation::limits().shared_per_block)
    return emulation::failed(cudaErrorInvalidValue);
  emulation::opted_in[kernel] = static_cast<std::size_t>(value);
  return emulation::alive();
}
