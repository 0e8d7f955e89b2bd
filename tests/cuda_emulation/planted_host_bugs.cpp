#include "planted_host_bugs.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "cuda/device/grid.cuh"
#include "cuda/device/kernel.cuh"

using namespace quire::cuda;

namespace {

constexpr int kCount = 64;
constexpr std::size_t kBytes = kCount * sizeof(float);

struct Deep {
  int count;
  struct {
    float* data;
  } view;
};
struct Large {
  char bytes[4096];
};

__global__ void add_one(float* o) { o[threadIdx.x] += 1; }
__global__ void add_one_deep(Deep deep) { deep.view.data[threadIdx.x] += 1; }
__global__ void static_shared(float* o) {
  SHARED(s, float[(48 << 10) / 4 + 1]);
  s[threadIdx.x] = o[threadIdx.x];
}
__global__ void both_shared(float* o) {
  SHARED(s, float[1024]);
  DYN_SHARED(d, float);
  s[threadIdx.x] = d[threadIdx.x] = o[threadIdx.x];
}
__global__ void meet() { grid_sync(); }

static_assert(fits_parameters<float*, int> && !fits_parameters<float*, Large>);

int refused(cudaError_t error) { return error == cudaSuccess ? 0 : 2; }

struct Memory {
  float* data = nullptr;
  enum Kind { device, pinned };
  explicit Memory(Kind kind = device) {
    void* memory = nullptr;
    kind == device ? cudaMalloc(&memory, kBytes) : cudaMallocHost(&memory, kBytes);
    data = static_cast<float*>(memory);
  }
  operator float*() const { return data; }
};
struct Stream {
  cudaStream_t stream = nullptr;
  Stream() { cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); }
  operator cudaStream_t() const { return stream; }
};
struct Event {
  cudaEvent_t event = nullptr;
  Event() { cudaEventCreateWithFlags(&event, cudaEventDisableTiming); }
  operator cudaEvent_t() const { return event; }
};
struct Capture : Stream {
  Capture() { cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal); }
  cudaError_t end() {
    cudaGraph_t graph = nullptr;
    return cudaStreamEndCapture(stream, &graph);
  }
};

void fill(float* data, float value) { std::fill(data, data + kCount, value); }
void put(float* device, float value) {
  std::vector<float> host(kCount, value);
  cudaMemcpy(device, host.data(), kBytes, cudaMemcpyHostToDevice);
}
int differs(const float* device, float expected) {
  std::vector<float> host(kCount);
  cudaMemcpy(host.data(), device, kBytes, cudaMemcpyDeviceToHost);
  return host == std::vector<float>(kCount, expected) ? 0 : 1;
}
cudaError_t launch_add(float* o, cudaStream_t stream, unsigned threads = kCount, dim3 grid = 1,
                       std::size_t shared = 0) {
  return launch_with(nullptr, add_one, grid, dim3(threads), shared, stream, o);
}
cudaError_t launch_plain(void (*kernel)(float*), std::size_t shared, float* o) {
  cudaLaunchConfig_t config{};
  config.gridDim = 1;
  config.blockDim = 32;
  config.dynamicSmemBytes = shared;
  return cudaLaunchKernelEx(&config, kernel, o);
}

// Memory.
int host_pointer_to_kernel() {
  std::vector<float> host(kCount);
  return refused(launch_add(host.data(), Stream()));
}
int host_pointer_deep_in_parameter() {
  std::vector<float> host(kCount);
  return refused(
      launch_with(nullptr, add_one_deep, 1, kCount, 0, Stream(), Deep{1, {host.data()}}));
}
int host_pointer_to_library() {
  std::vector<float> host(kCount);
  return refused(emulation::enqueue(Stream(), [data = host.data()] { data[0] = 1; }));
}
int host_reads_device() { return static_cast<int>(*static_cast<volatile float*>(Memory())) * 0; }
int host_writes_device() { return *static_cast<volatile float*>(Memory()) = 1, 0; }
int copy_of_wrong_kind() {
  std::vector<float> host(kCount);
  return refused(
      cudaMemcpyAsync(Memory(), host.data(), kBytes, cudaMemcpyDeviceToDevice, Stream()));
}
int copy_past_end() {
  std::vector<float> host(kCount + 1);
  return refused(
      cudaMemcpyAsync(Memory(), host.data(), kBytes + 4, cudaMemcpyHostToDevice, Stream()));
}
int set_past_end() { return refused(cudaMemsetAsync(Memory() + 1, 0, kBytes, Stream())); }
int launch_after_free() {
  const Memory memory;
  cudaFree(memory);
  return refused(launch_add(memory, Stream()));
}
int replay_after_free() {
  const Memory memory;
  Capture capture;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  launch_add(memory, capture);
  cudaStreamEndCapture(capture, &graph);
  cudaGraphInstantiate(&executable, graph, 0);
  cudaFree(memory);
  cudaGraphLaunch(executable, capture);
  return refused(cudaStreamSynchronize(capture));
}
int free_twice() {
  const Memory memory;
  cudaFree(memory);
  return refused(cudaFree(memory));
}

// Launches.
int too_many_threads() { return refused(launch_add(Memory(), Stream(), 1025)); }
int too_many_blocks_in_y() { return refused(launch_add(Memory(), Stream(), 1, dim3(1, 65536))); }
int empty_grid() { return refused(launch_add(Memory(), Stream(), kCount, dim3(0))); }
int too_much_shared() {
  return refused(launch_add(Memory(), Stream(), kCount, 1, (227 << 10) + 1));
}
int too_much_static_shared() { return refused(launch_plain(static_shared, 0, Memory())); }
int shared_without_opt_in() { return refused(launch_plain(add_one, (48 << 10) + 4, Memory())); }
int both_without_opt_in() { return refused(launch_plain(both_shared, 45 << 10, Memory())); }
int cooperative_grid_too_large() {
  return refused(launch_cooperative(meet, dim3(1000), dim3(1024), 0, Stream()));
}

// Captures. A refused call also spoils the graph.
int spoils(Capture& capture, cudaError_t error) {
  return refused(error) != 0 && refused(capture.end()) != 0 ? 2 : 0;
}
int allocation_in_capture() {
  Capture capture;
  void* data = nullptr;
  return spoils(capture, cudaMalloc(&data, 4));
}
int free_in_capture() {
  const Memory memory;
  Capture capture;
  return spoils(capture, cudaFree(memory));
}
int synchronisation_in_capture() {
  Capture capture;
  return spoils(capture, cudaStreamSynchronize(capture));
}
int event_query_in_capture() {
  const Event event;
  const Stream other;
  cudaEventRecord(event, other);
  Capture capture;
  return spoils(capture, cudaEventQuery(event));
}
int captured_event_awaited() {
  const Event event;
  Capture capture;
  cudaEventRecord(event, capture);
  return refused(cudaEventSynchronize(event));
}
int uncaptured_event_in_capture() {
  const Event event;
  const Stream other;
  const Memory memory;
  launch_add(memory, other);
  cudaEventRecord(event, other);
  Capture capture;
  return spoils(capture, cudaStreamWaitEvent(capture, event, 0));
}
int pageable_copy_in_capture() {
  std::vector<float> host(kCount);
  const Memory memory;
  Capture capture;
  return spoils(capture, cudaMemcpyAsync(host.data(), memory, kBytes, cudaMemcpyDefault, capture));
}
int default_stream_in_capture() {
  const Memory memory;
  Capture capture;
  return spoils(capture, launch_add(memory, nullptr));
}
int unjoined_stream() {
  const Event event;
  const Stream other;
  const Memory memory;
  Capture capture;
  cudaEventRecord(event, capture);
  cudaStreamWaitEvent(other, event, 0);
  launch_add(memory, other);
  return refused(capture.end());
}
int capture_ended_by_another_thread() {
  Capture capture;
  cudaError_t error = cudaSuccess;
  std::thread([&] { error = capture.end(); }).join();
  return refused(error);
}
int capturing_stream_destroyed() {
  Capture capture;
  return refused(cudaStreamDestroy(capture));
}

// Handles and errors.
int destroyed_event_recorded() {
  const Event event;
  cudaEventDestroy(event);
  return refused(cudaEventRecord(event, Stream()));
}
int stream_destroyed_twice() {
  const Stream stream;
  cudaStreamDestroy(stream);
  return refused(cudaStreamDestroy(stream));
}
int used_after_a_fault() {
  try {
    host_pointer_to_kernel();
  } catch (const std::exception&) {
    cudaGetLastError();
  }
  return refused(cudaGetLastError()) != 0 && refused(launch_add(Memory(), Stream())) != 0 ? 2 : 0;
}

// Order. Which of them shows depends on how far the streams run ahead.
int reads_before_other_stream_wrote() {
  const Stream writer, reader;
  const Memory memory, result;
  put(memory, 1);
  launch_add(memory, writer);
  cudaMemcpyAsync(result, memory, kBytes, cudaMemcpyDefault, reader);
  cudaStreamSynchronize(reader);
  return differs(result, 2);
}
int writes_before_other_stream_read() {
  const Stream writer, reader;
  const Memory memory, result;
  put(memory, 1);
  cudaMemcpyAsync(result, memory, kBytes, cudaMemcpyDefault, reader);
  launch_add(memory, writer);
  cudaStreamSynchronize(writer);
  cudaStreamSynchronize(reader);
  return differs(result, 1);
}
// What the host waits for is the reader; only a writer that runs ahead shows the missing wait.
int writer_runs_ahead() {
  const Stream writer, reader;
  const Memory memory, result;
  put(memory, 1);
  cudaMemcpyAsync(result, memory, kBytes, cudaMemcpyDefault, reader);
  launch_add(memory, writer);
  cudaStreamSynchronize(reader);
  return differs(result, 1);
}
int source_changed_before_copy() {
  const Stream stream;
  const Memory memory, host(Memory::pinned);
  fill(host, 1);
  cudaMemcpyAsync(memory, host, kBytes, cudaMemcpyDefault, stream);
  fill(host, 2);
  cudaStreamSynchronize(stream);
  return differs(memory, 1);
}
int source_filled_after_copy() {
  const Stream stream;
  const Memory memory, host(Memory::pinned);
  cudaMemcpyAsync(memory, host, kBytes, cudaMemcpyDefault, stream);
  fill(host, 1);
  cudaStreamSynchronize(stream);
  return differs(memory, 1);
}
int result_read_before_copy() {
  const Stream stream;
  const Memory memory, host(Memory::pinned);
  put(memory, 1);
  fill(host, 0);
  cudaMemcpyAsync(host, memory, kBytes, cudaMemcpyDefault, stream);
  return host[0] == 1 ? 0 : 1;
}

// What the bugs above do, done right: nothing of it may be refused.
int nothing_wrong() {
  const Event forked, joined;
  const Stream other;
  const Memory memory, result(Memory::pinned);
  put(memory, 1);
  Capture capture;
  cudaEventRecord(forked, capture);
  cudaStreamWaitEvent(other, forked, 0);
  cudaError_t worst = launch_add(memory, other);
  cudaEventRecord(joined, other);
  cudaStreamWaitEvent(capture, joined, 0);
  worst = std::max(worst, launch_add(memory, capture, 64, dim3(1, 1, 1), 100 << 10));
  worst = std::max(worst, cudaMemcpyAsync(result, memory, kBytes, cudaMemcpyDefault, capture));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  worst = std::max(worst, cudaStreamEndCapture(capture, &graph));
  cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphLaunch(executable, capture);
  worst = std::max(worst, launch_cooperative(meet, dim3(4), dim3(1024), 0, capture));
  worst = std::max(worst, launch_plain(both_shared, 40 << 10, memory));
  worst = std::max(worst, cudaStreamSynchronize(capture));
  cudaEventRecord(joined, capture);
  worst = std::max(worst, cudaEventQuery(joined));
  for (const cudaError_t error : {cudaStreamDestroy(other), cudaEventDestroy(joined),
                                  cudaGraphDestroy(graph), cudaGraphExecDestroy(executable)})
    worst = std::max(worst, error);
  return worst != cudaSuccess ? 2 : result[0] == 3 && result[kCount - 1] == 3 ? 0 : 1;
}

#define BUG(name) \
  { #name, name }
const std::map<std::string, HostBug> kBugs = {
    BUG(nothing_wrong),
    BUG(host_pointer_to_kernel),
    BUG(host_pointer_deep_in_parameter),
    BUG(host_pointer_to_library),
    BUG(host_reads_device),
    BUG(host_writes_device),
    BUG(copy_of_wrong_kind),
    BUG(copy_past_end),
    BUG(set_past_end),
    BUG(launch_after_free),
    BUG(replay_after_free),
    BUG(free_twice),
    BUG(too_many_threads),
    BUG(too_many_blocks_in_y),
    BUG(empty_grid),
    BUG(too_much_shared),
    BUG(too_much_static_shared),
    BUG(shared_without_opt_in),
    BUG(both_without_opt_in),
    BUG(cooperative_grid_too_large),
    BUG(allocation_in_capture),
    BUG(free_in_capture),
    BUG(synchronisation_in_capture),
    BUG(event_query_in_capture),
    BUG(captured_event_awaited),
    BUG(uncaptured_event_in_capture),
    BUG(pageable_copy_in_capture),
    BUG(default_stream_in_capture),
    BUG(unjoined_stream),
    BUG(capture_ended_by_another_thread),
    BUG(capturing_stream_destroyed),
    BUG(destroyed_event_recorded),
    BUG(stream_destroyed_twice),
    BUG(used_after_a_fault),
    BUG(reads_before_other_stream_wrote),
    BUG(writes_before_other_stream_read),
    BUG(writer_runs_ahead),
    BUG(source_changed_before_copy),
    BUG(source_filled_after_copy),
    BUG(result_read_before_copy),
};

}  // namespace

const std::map<std::string, HostBug>& host_bugs() { return kBugs; }
