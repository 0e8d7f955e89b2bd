// The part of the CUDA runtime API that Quire's host code uses, on host memory: devices, errors,
// copies. streams.cpp has the queues, memory.cpp the two kinds of memory, launch.cpp the limits.

#include "runtime.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "device_loss.h"
#include "memory.h"

namespace emulation {
namespace {

std::atomic<cudaError_t> last_error = cudaSuccess;
std::atomic<bool> lost = false;
thread_local int current_device = 0;

// QUIRE_EMULATION_DEVICES=0: a machine without. Those of one process share one device's memory.
int num_devices() {
  const char* text = std::getenv("QUIRE_EMULATION_DEVICES");
  return text != nullptr ? std::atoi(text) : 1;
}

Limits read_limits() {
  const char* text = std::getenv("QUIRE_EMULATION_CAPABILITY");
  const std::string_view capability = text != nullptr ? text : "90";
  if (capability == "75") return {75, 64 << 10, 64 << 10, 1024, 16};
  if (capability == "80") return {80, 163 << 10, 164 << 10, 2048, 32};
  if (capability == "89") return {89, 99 << 10, 100 << 10, 1536, 24};
  return {};
}

struct Name {
  cudaError_t error;
  const char *name, *text;
};
#define NAMED(error, text) \
  { error, #error, text }
constexpr Name kNames[] = {
    NAMED(cudaSuccess, "no error"),
    NAMED(cudaErrorInvalidValue, "invalid argument"),
    NAMED(cudaErrorMemoryAllocation, "out of memory"),
    NAMED(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    NAMED(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    NAMED(cudaErrorInvalidDevice, "invalid device ordinal"),
    NAMED(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    NAMED(cudaErrorNotReady, "device not ready"),
    NAMED(cudaErrorNoKernelImageForDevice,
          "no kernel image is available for execution on the device"),
    NAMED(cudaErrorLaunchFailure, "unspecified launch failure"),
    NAMED(cudaErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch"),
    NAMED(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    NAMED(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error"),
    NAMED(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    NAMED(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work"),
    NAMED(cudaErrorStreamCaptureImplicit, "would use the legacy stream while capturing"),
    NAMED(cudaErrorCapturedEvent, "operation not permitted on an event recorded in a capture"),
};
const Name& named(cudaError_t error) {
  static constexpr Name kOther = {cudaSuccess, "cudaError", "emulated CUDA error"};
  for (const Name& name : kNames) {
    if (name.error == error) return name;
  }
  return kOther;
}

// Does the kind say where both addresses are?
bool agrees(cudaMemcpyKind kind, Space to, Space from) {
  if (kind == cudaMemcpyDefault) return true;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return to_device == (to == Space::device) && from_device == (from == Space::device);
}

cudaError_t check_copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const bool legal =
      is_whole(to, bytes) && is_whole(from, bytes) && agrees(kind, space_of(to), space_of(from));
  return legal ? alive() : failed(cudaErrorInvalidValue);
}

}  // namespace

std::recursive_mutex& runtime_mutex() {
  static auto* mutex = new std::recursive_mutex;
  return *mutex;
}

cudaError_t failed(cudaError_t error) { return last_error = error; }
cudaError_t alive() { return lost ? failed(cudaErrorLaunchFailure) : cudaSuccess; }
bool is_lost() { return lost; }
void lose_device() { lost = true; }
void fault(const std::string& what) {
  lost = true;
  throw std::runtime_error(what);
}

const Limits& limits() {
  static const Limits value = read_limits();
  return value;
}

}  // namespace emulation

using namespace emulation;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = num_devices();
  return *count > 0 ? cudaSuccess : failed(cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int* id) { return *id = current_device, cudaSuccess; }
cudaError_t cudaSetDevice(int id) {
  if (id < 0 || id >= num_devices()) return failed(cudaErrorInvalidDevice);
  return current_device = id, cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {"emulated", limits().capability / 10, limits().capability % 10, device_bytes()};
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      return *value = limits().sms, cudaSuccess;
    case cudaDevAttrL2CacheSize:
      return *value = 1 << 20, cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      return *value = limits().capability / 10, cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      return *value = limits().capability % 10, cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return *value = static_cast<int>(limits().shared_per_block), cudaSuccess;
  }
  return failed(cudaErrorInvalidValue);
}
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaDeviceSynchronize() {
  LOCK;
  if (const cudaError_t error = unsafe_call(); error != cudaSuccess) return error;
  drain_all();
  return alive();
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  LOCK;
  *free = device_bytes_free();
  *total = device_bytes();
  return alive();
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  LOCK;
  if (const cudaError_t error = unsafe_call(); error != cudaSuccess) return error;
  return is_lost() ? alive() : allocate_device(data, bytes);
}
// Freeing waits for everything that is queued.
cudaError_t cudaFree(void* data) {
  LOCK;
  if (const cudaError_t error = unsafe_call(); error != cudaSuccess) return error;
  drain_all();
  return free_device(data);
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  LOCK;
  if (const cudaError_t error = unsafe_call(); error != cudaSuccess) return error;
  return is_lost() ? alive() : allocate_pinned(data, bytes);
}
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  return cudaMallocHost(data, bytes);
}
cudaError_t cudaFreeHost(void* data) {
  LOCK;
  if (const cudaError_t error = unsafe_call(); error != cudaSuccess) return error;
  drain_all();
  return free_pinned(data);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  LOCK;
  if (const cudaError_t error = check_copy(to, from, bytes, kind); error != cudaSuccess)
    return error;
  const bool pageable_source = space_of(from) == Space::pageable;
  const bool pageable_target = space_of(to) == Space::pageable;
  if (is_capturing(stream) && (pageable_source || pageable_target)) {
    unsafe_call();
    return failed(cudaErrorStreamCaptureUnsupported);
  }
  const auto copy = [=](const void* source) {
    if (!is_whole(to, bytes) || !is_whole(source, bytes)) fault("a copy's memory has been freed");
    std::memcpy(to, source, bytes);
  };
  if (pageable_source) {  // staged before the call returns
    const auto* begin = static_cast<const char*>(from);
    auto staged = std::make_shared<std::vector<char>>(begin, begin + bytes);
    put(stream, [=] { copy(staged->data()); });
  } else {
    put(stream, [=] { copy(from); });
  }
  if (pageable_target && stream != nullptr) drain(stream);  // synchronous
  return alive();
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  LOCK;
  if (const cudaError_t error = unsafe_call(); error != cudaSuccess) return error;
  if (const cudaError_t error = check_copy(to, from, bytes, kind); error != cudaSuccess)
    return error;
  drain_all();
  const DeviceAccess access;
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  LOCK;
  if (space_of(data) == Space::pageable || !is_whole(data, bytes))
    return failed(cudaErrorInvalidValue);
  return put(stream, [=] {
    if (!is_whole(data, bytes)) fault("memory to set has been freed");
    std::memset(data, value, bytes);
  });
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error.exchange(cudaSuccess);
  return lost ? cudaErrorLaunchFailure : error;
}
cudaError_t cudaPeekAtLastError() { return lost ? cudaErrorLaunchFailure : last_error.load(); }
const char* cudaGetErrorName(cudaError_t error) { return named(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return named(error).text; }

}  // extern "C"
