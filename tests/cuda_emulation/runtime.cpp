// The part of the CUDA runtime API that Quire's host code uses, on host memory. Streams are lazy:
// queued work runs only when something synchronises with it, as late as CUDA allows, so that host
// code which forgets to wait sees stale data (QUIRE_EMULATION_STREAMS=now runs it at once). Device
// memory has exact sizes and starts as 0xff.

#include <cuda_runtime.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "device_loss.h"
#include "kernel.h"

using Work = std::function<void()>;
struct CUgraph_st {
  std::vector<Work> work;
};
struct CUgraphExec_st {
  std::vector<Work> work;
};
struct CUstream_st {
  std::deque<Work> queue;
  std::uint64_t queued = 0, done = 0;
  CUgraph_st* capturing = nullptr;
};
struct CUevent_st {
  CUstream_st* stream = nullptr;
  std::uint64_t at = 0;
};

namespace {

std::recursive_mutex mutex;
std::set<CUstream_st*> streams;
std::map<const char*, std::size_t> pinned, device;
cudaError_t last_error = cudaSuccess;
std::atomic<bool> lost = false;

bool lazy() {
  static const bool value = [] {
    const char* text = std::getenv("QUIRE_EMULATION_STREAMS");
    return text == nullptr || std::string_view(text) != "now";
  }();
  return value;
}

cudaError_t failed(cudaError_t error) { return last_error = error; }
cudaError_t alive() { return lost ? failed(cudaErrorLaunchFailure) : cudaSuccess; }

void drain(CUstream_st* stream, std::uint64_t until) {
  while (!lost && stream->done < until && !stream->queue.empty()) {
    const Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    ++stream->done;
    work();
  }
}
void drain_all() {
  for (CUstream_st* stream : streams) drain(stream, stream->queued);
}

bool within(const std::map<const char*, std::size_t>& memory, const void* address) {
  auto it = memory.upper_bound(static_cast<const char*>(address));
  if (it == memory.begin()) return false;
  --it;
  return static_cast<const char*>(address) < it->first + it->second;
}

cudaError_t put(CUstream_st* stream, Work work) {
  if (lost) return alive();
  if (stream == nullptr) {  // the legacy default stream waits for all others
    drain_all();
    work();
  } else if (stream->capturing != nullptr) {
    stream->capturing->work.push_back(std::move(work));
  } else if (!lazy()) {
    work();
  } else {
    stream->queue.push_back(std::move(work));
    ++stream->queued;
  }
  return cudaSuccess;
}

// Exact sizes: ASan sees the very next byte.
cudaError_t allocate(std::map<const char*, std::size_t>& memory, void** data, std::size_t bytes) {
  if (lost) return alive();
  if (posix_memalign(data, 256, bytes != 0 ? bytes : 1) != 0)
    return failed(cudaErrorMemoryAllocation);
  std::memset(*data, 0xff, bytes);
  memory[static_cast<char*>(*data)] = bytes;
  return cudaSuccess;
}
cudaError_t release(std::map<const char*, std::size_t>& memory, void* data) {
  drain_all();
  if (data == nullptr) return cudaSuccess;
  if (memory.erase(static_cast<char*>(data)) == 0) return failed(cudaErrorInvalidValue);
  std::free(data);
  return cudaSuccess;
}

}  // namespace

namespace emulation {
void lose_device() { lost = true; }

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
  const std::lock_guard lock(mutex);
  return put(stream, std::move(work));
}
}  // namespace emulation

#define LOCK const std::lock_guard lock(mutex)
#define SYNCHRONISES \
  if (emulation::deleted({__func__, "", 0})) return cudaSuccess

extern "C" {

// QUIRE_EMULATION_DEVICES=0: a machine without.
cudaError_t cudaGetDeviceCount(int* count) {
  const char* text = std::getenv("QUIRE_EMULATION_DEVICES");
  *count = text == nullptr ? 1 : std::atoi(text);
  return *count > 0 ? cudaSuccess : failed(cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int* id) { return *id = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int id) { return id == 0 ? cudaSuccess : failed(cudaErrorInvalidDevice); }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {"emulated", 9, 0, std::size_t{8} << 30};
  return cudaSuccess;
}
// QUIRE_EMULATION_CAPABILITY: 90 unless it says otherwise.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const char* text = std::getenv("QUIRE_EMULATION_CAPABILITY");
  const int capability = text != nullptr ? std::atoi(text) : 90;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      return *value = 4, cudaSuccess;
    case cudaDevAttrL2CacheSize:
      return *value = 1 << 20, cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      return *value = capability / 10, cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      return *value = capability % 10, cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return *value = 227 << 10, cudaSuccess;
  }
  return failed(cudaErrorInvalidValue);
}
cudaError_t cudaDeviceSynchronize() {
  LOCK;
  drain_all();
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{8} << 30;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  LOCK;
  return allocate(device, data, bytes);
}
cudaError_t cudaFree(void* data) {
  LOCK;
  return release(device, data);
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  LOCK;
  return allocate(pinned, data, bytes);
}
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  return cudaMallocHost(data, bytes);
}
cudaError_t cudaFreeHost(void* data) {
  LOCK;
  return release(pinned, data);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  LOCK;
  const bool pageable_source = !within(device, from) && !within(pinned, from);
  const bool pageable_target = !within(device, to) && !within(pinned, to);
  if (stream != nullptr && stream->capturing != nullptr && (pageable_source || pageable_target)) {
    return failed(cudaErrorStreamCaptureUnsupported);
  }
  if (pageable_source) {  // staged before the call returns
    const auto* begin = static_cast<const char*>(from);
    auto staged = std::make_shared<std::vector<char>>(begin, begin + bytes);
    put(stream, [=] { std::memcpy(to, staged->data(), bytes); });
  } else {
    put(stream, [=] { std::memcpy(to, from, bytes); });
  }
  if (pageable_target && stream != nullptr) drain(stream, stream->queued);  // synchronous
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  LOCK;
  drain_all();
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  LOCK;
  return put(stream, [=] { std::memset(data, value, bytes); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  LOCK;
  streams.insert(*stream = new CUstream_st);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  LOCK;
  drain_all();
  streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  LOCK;
  SYNCHRONISES;
  if (stream == nullptr) return drain_all(), alive();
  if (stream->capturing != nullptr) return failed(cudaErrorStreamCaptureUnsupported);
  drain(stream, stream->queued);
  return alive();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  LOCK;
  SYNCHRONISES;
  CUstream_st* other = event->stream;
  if (other == nullptr) return cudaSuccess;
  return put(stream, [other, at = event->at] { drain(other, at); });
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  LOCK;
  stream->capturing = new CUgraph_st;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  LOCK;
  *graph = std::exchange(stream->capturing, nullptr);
  return *graph != nullptr ? cudaSuccess : failed(cudaErrorStreamCaptureInvalidated);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = new CUevent_st, cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  LOCK;
  SYNCHRONISES;
  event->stream = stream;
  event->at = stream != nullptr ? stream->queued : 0;
  return alive();
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  LOCK;
  SYNCHRONISES;
  if (event->stream != nullptr) drain(event->stream, event->at);
  return alive();
}
// Asking makes a little progress, as time does on a device.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  LOCK;
  if (lost) return alive();
  if (event->stream == nullptr || event->stream->done >= event->at) return cudaSuccess;
  drain(event->stream, event->stream->done + 1);
  return event->stream->done >= event->at ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  return *milliseconds = 0, cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  return *executable = new CUgraphExec_st{graph->work}, cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  LOCK;
  for (const Work& work : executable->work) put(stream, work);
  return alive();
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return delete executable, cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) {
  if (error == cudaErrorLaunchFailure) return "cudaErrorLaunchFailure";
  return error == cudaSuccess ? "cudaSuccess" : "cudaError";
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "emulated CUDA error";
}

}  // extern "C"
