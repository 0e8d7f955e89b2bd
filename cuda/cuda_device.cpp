// Device on the CUDA runtime: two streams, memory that is taken at start-up, decode steps as
// graphs.

#include <string>

#include "cuda/cuda_backend.h"
#include "cuda/gemm.h"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/capability.h"
#include "cuda/runtime/handles.h"
#include "cuda/runtime/tensor_map.h"

namespace quire {
namespace {

using namespace quire::cuda;

cudaStream_t stream_of(StreamRef stream) { return static_cast<cudaStream_t>(stream.handle()); }
StreamRef ref(const Stream& stream) { return StreamRef::from_handle(stream.get()); }

class CudaGraph final : public Graph {
 public:
  CudaGraph(GraphExec executable, Buffer account)
      : executable_(std::move(executable)), account_(std::move(account)) {}
  void replay(StreamRef stream) override {
    CUDA_CHECK(cudaGraphLaunch(executable_.get(), stream_of(stream)));
  }

 private:
  GraphExec executable_;
  Buffer account_;  // of no address: the memory is the driver's
};

class CudaEvent final : public Event {
 public:
  void record(StreamRef stream) override {
    CUDA_CHECK(cudaEventRecord(event_.get(), stream_of(stream)));
  }
  bool ready() const override {
    const cudaError_t state = cudaEventQuery(event_.get());
    if (state == cudaErrorNotReady) return false;
    CUDA_CHECK(state);
    return true;
  }
  void wait() override { CUDA_CHECK(cudaEventSynchronize(event_.get())); }
  cudaEvent_t handle() const { return event_.get(); }

 private:
  EventHandle event_ = cuda::create_event(/*timing=*/false);
};

// Ends a capture that an exception left open, so that the stream can be used again.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  }
  ~Capture() {
    if (stream_ == nullptr) return;
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(stream_, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
  GraphHandle end() {
    cudaGraph_t graph = nullptr;
    CUDA_CHECK(cudaStreamEndCapture(std::exchange(stream_, nullptr), &graph));
    return GraphHandle(graph);
  }

 private:
  cudaStream_t stream_;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int id) : id_(id) {
    CUDA_CHECK(cudaSetDevice(id));
    compute_ = create_stream();
    copies_ = create_stream();
  }

  std::string name() const override { return "cuda:" + std::to_string(id_); }
  bool is_host_memory() const override { return false; }
  MemoryInfo memory() const override {
    MemoryInfo info;
    CUDA_CHECK(cudaMemGetInfo(&info.available, &info.total));
    return info;
  }

  MemoryLedger& ledger() override { return ledger_; }

  Buffer allocate(std::size_t bytes, MemoryPurpose purpose) override {
    void* data = nullptr;
    if (bytes != 0) check_memory(cudaMalloc(&data, bytes), bytes_of(bytes, "device"), purpose);
    Buffer memory(data, bytes, [](void* p, std::size_t) { cudaFree(p); });
    return {std::move(memory), ledger_, purpose, MemoryKind::device};
  }
  Buffer allocate_host(std::size_t bytes, MemoryPurpose purpose) override {
    void* data = nullptr;
    if (bytes != 0)
      check_memory(cudaHostAlloc(&data, bytes, cudaHostAllocDefault),
                   bytes_of(bytes, "pinned host"), purpose);
    Buffer memory(data, bytes, [](void* p, std::size_t) { cudaFreeHost(p); });
    return {std::move(memory), ledger_, purpose, MemoryKind::pinned};
  }

  StreamRef stream() override { return ref(compute_); }
  StreamRef copy_stream() override { return ref(copies_); }
  void copy(void* dst, const void* src, std::size_t bytes, StreamRef stream) override {
    if (bytes != 0)
      CUDA_CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream_of(stream)));
  }
  void zero(void* dst, std::size_t bytes, StreamRef stream) override {
    if (bytes != 0) CUDA_CHECK(cudaMemsetAsync(dst, 0, bytes, stream_of(stream)));
  }
  void synchronize(StreamRef stream) override {
    CUDA_CHECK(cudaStreamSynchronize(stream_of(stream)));
  }
  std::unique_ptr<Event> create_event() override { return std::make_unique<CudaEvent>(); }
  void wait(StreamRef stream, Event& event) override {
    CUDA_CHECK(cudaStreamWaitEvent(stream_of(stream), static_cast<CudaEvent&>(event).handle(), 0));
  }

  std::unique_ptr<Graph> capture(const std::function<void()>& body) override {
    Capture capture(compute_.get());
    body();
    const GraphHandle graph = capture.end();
    const std::size_t before = memory().available;
    cudaGraphExec_t executable = nullptr;
    check_memory(cudaGraphInstantiate(&executable, graph.get(), 0), "device",
                 MemoryPurpose::graphs);
    GraphExec owner(executable);
    check_memory(cudaGraphUpload(executable, compute_.get()), "device", MemoryPurpose::graphs);
    synchronize(stream());
    const std::size_t after = memory().available;
    Buffer account(nullptr, before > after ? before - after : 0, nullptr);
    return std::make_unique<CudaGraph>(
        std::move(owner),
        Buffer(std::move(account), ledger_, MemoryPurpose::graphs, MemoryKind::device));
  }

 private:
  static std::string bytes_of(std::size_t bytes, const char* kind) {
    return std::to_string(bytes) + " bytes of " + kind;
  }
  static void check_memory(cudaError_t error, const std::string& what, MemoryPurpose purpose) {
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      MemoryInfo info;
      cudaMemGetInfo(&info.available, &info.total);
      throw Failure(ErrorCode::unavailable,
                    "no " + what + " memory for " + std::string(name_of(purpose)) + ": " +
                        std::to_string(info.available) + " of " + std::to_string(info.total) +
                        " device bytes are free");
    }
    CUDA_CHECK(error);
  }

  MemoryLedger ledger_;
  int id_;
  Stream compute_, copies_;
};

std::string kernels_unavailable() {
  const cudaError_t error = cuda::find_kernel();
  if (error == cudaSuccess) return "";
  cudaGetLastError();
  const int capability = compute_capability();
  return "the kernels need a device of compute capability 8.0 or later, and a build for it: this "
         "one has " +
         std::to_string(capability / 10) + "." + std::to_string(capability % 10) + " (" +
         cudaGetErrorString(error) + ")";
}

}  // namespace

std::string cuda_unavailable() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return std::string("CUDA cannot be used: ") + cudaGetErrorString(error);
  }
  if (count == 0) return "there is no CUDA device";
  const std::string no_kernels = kernels_unavailable();
  return no_kernels.empty() ? gemm_unavailable() : no_kernels;
}

std::string cuda_lacks() {
  if (!is_hopper() || tensor_maps_unavailable().empty()) return "";
  return tensor_maps_unavailable() + ", so prompts are attended to by kernels without it";
}

int num_cuda_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

std::unique_ptr<Device> make_cuda_device(const CudaOptions& options) {
  if (const std::string reason = cuda_unavailable(); !reason.empty())
    throw Failure(ErrorCode::unavailable, reason);
  const int count = num_cuda_devices();
  if (options.device >= count) {
    throw Failure(ErrorCode::unavailable, "there is no CUDA device " +
                                              std::to_string(options.device) +
                                              ": the machine has " + std::to_string(count));
  }
  return std::make_unique<CudaDevice>(options.device);
}

}  // namespace quire
