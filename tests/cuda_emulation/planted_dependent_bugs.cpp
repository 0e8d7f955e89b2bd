// Kernels that begin while others run, with one bug each in what they do before they wait.

#include <vector>

#include "cuda/device/kernel.cuh"
#include "planted_host_bugs.h"

using namespace quire::cuda;

namespace {

constexpr int kCount = 64;
constexpr std::size_t kBytes = kCount * sizeof(float);

struct Place {
  float* out;
  const float* in;
  const float* constant;
};

// out = in + 1, as it should be.
__global__ void add_one(Place p) {
  release_next_kernel();
  await_previous_kernel();
  p.out[threadIdx.x] = p.in[threadIdx.x] + 1;
}
__global__ void add_constant(Place p) {
  release_next_kernel();
  const float constant = p.constant[threadIdx.x];
  await_previous_kernel();
  p.out[threadIdx.x] = p.in[threadIdx.x] + constant;
}
__global__ void read_early(Place p) {
  release_next_kernel();
  const float in = p.in[threadIdx.x];
  await_previous_kernel();
  p.out[threadIdx.x] = in + 1;
}
__global__ void write_early(Place p) {
  release_next_kernel();
  p.out[threadIdx.x] = 7;
  await_previous_kernel();
}
__global__ void never_wait(Place) { release_next_kernel(); }
__global__ void some_wait(Place p) {
  release_next_kernel();
  if (threadIdx.x == 63) return;
  await_previous_kernel();
  p.out[threadIdx.x] = p.in[threadIdx.x] + 1;
}

// Four rows in memory: 1, 1, 1, 1; `constant` is the last. The host waits for all of it.
struct Rows {
  cudaStream_t stream = nullptr;
  float* data = nullptr;
  Rows() {
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    void* memory = nullptr;
    cudaMalloc(&memory, 4 * kBytes);
    data = static_cast<float*>(memory);
    const std::vector<float> ones(4 * kCount, 1);
    cudaMemcpy(data, ones.data(), 4 * kBytes, cudaMemcpyHostToDevice);
  }
  const Rows& then(void (*kernel)(Place), int out, int in) const {
    const Place place{data + out * kCount, data + in * kCount, data + 3 * kCount};
    launch(kernel, dim3(1), dim3(kCount), 0, stream, place);
    return *this;
  }
  int differs(int row, float expected) const {
    std::vector<float> host(kCount);
    if (cudaStreamSynchronize(stream) != cudaSuccess) return 2;
    cudaMemcpy(host.data(), data + row * kCount, kBytes, cudaMemcpyDeviceToHost);
    return host == std::vector<float>(kCount, expected) ? 0 : 1;
  }
};

int dependent_and_right() {
  return Rows().then(add_one, 1, 0).then(add_constant, 2, 1).then(add_one, 0, 2).differs(0, 4);
}
int reads_before_its_wait() {
  return Rows().then(add_one, 1, 0).then(read_early, 2, 1).differs(2, 3);
}
int reads_what_the_kernel_before_last_wrote() {
  return Rows().then(add_one, 1, 0).then(add_one, 0, 3).then(read_early, 2, 1).differs(2, 3);
}
int writes_before_its_wait() {
  return Rows().then(add_one, 1, 0).then(write_early, 0, 0).differs(1, 2);
}
int ends_without_its_wait() {
  return Rows().then(add_one, 1, 0).then(never_wait, 0, 0).differs(1, 2);
}
// Its wait is for a kernel that did not wait for the one that wrote.
int waits_for_one_that_did_not() {
  return Rows().then(add_one, 1, 0).then(never_wait, 0, 0).then(add_one, 2, 1).differs(2, 3);
}
int some_threads_end_without() {
  return Rows().then(add_one, 1, 0).then(some_wait, 2, 1).differs(1, 2);
}
// Kernels behind copies begin when these have ended.
int reads_what_a_copy_brought() {
  const Rows rows;
  cudaMemcpyAsync(rows.data + kCount, rows.data, kBytes, cudaMemcpyDeviceToDevice, rows.stream);
  return rows.then(read_early, 2, 1).then(add_one, 0, 2).differs(0, 3);
}
int replayed_reads_before_its_wait() {
  const Rows rows;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaStreamBeginCapture(rows.stream, cudaStreamCaptureModeThreadLocal);
  rows.then(add_one, 1, 0).then(read_early, 2, 1);
  cudaStreamEndCapture(rows.stream, &graph);
  cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphLaunch(executable, rows.stream);
  return rows.differs(2, 3);
}

#define BUG(name) \
  { #name, name }
const std::map<std::string, HostBug> kBugs = {
    BUG(dependent_and_right),
    BUG(reads_before_its_wait),
    BUG(reads_what_the_kernel_before_last_wrote),
    BUG(writes_before_its_wait),
    BUG(ends_without_its_wait),
    BUG(waits_for_one_that_did_not),
    BUG(some_threads_end_without),
    BUG(reads_what_a_copy_brought),
    BUG(replayed_reads_before_its_wait),
};

}  // namespace

const std::map<std::string, HostBug>& dependent_bugs() { return kBugs; }
