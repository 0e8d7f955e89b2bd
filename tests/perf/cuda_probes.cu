#include "tests/perf/cuda_probes.h"

#include <algorithm>
#include <vector>

#include "cuda/device/kernel.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/handles.h"
#include "tests/perf/perf_record.h"

#ifdef __CUDACC__
#include <cuda_profiler_api.h>
#endif

namespace quire::perf {
namespace {

using cuda::native;

constexpr int kThreads = 512;
constexpr int kBlocks = 132 * 4;

__global__ void read_kernel(const uint4* data, std::int64_t count, unsigned* sink) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  unsigned bits = 0;
#pragma unroll 8
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    const uint4 v = data[i];
    bits |= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sink != nullptr) sink[threadIdx.x] = bits;  // keeps the loads; sink is null
}

__global__ void fill_kernel(__nv_bfloat16* data, std::int64_t count, float scale) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    auto bits = static_cast<std::uint32_t>(i) * 2654435761u;
    bits = (bits ^ bits >> 15) * 2246822519u;
    data[i] = __nv_bfloat16(scale * (static_cast<float>(bits >> 8) * 0x1p-23f - 1.f));
  }
}

__global__ void fill_codes_kernel(std::uint8_t* data, std::int64_t count) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    auto bits = static_cast<std::uint32_t>(i) * 2654435761u;
    bits = (bits ^ bits >> 15) * 2246822519u;
    data[i] = static_cast<std::uint8_t>(bits >> 24 & 0xbfu);
  }
}

__global__ void pause_kernel(int turns) {
  for (int i = 0; i < turns; ++i) cuda::spin_pause();
}
__global__ void empty_kernel() {}
// As all of the backend's: it begins while the one in front runs.
__global__ void waiting_kernel() {
  cuda::release_next_kernel();
  cuda::await_previous_kernel();
}

std::size_t probe_bytes(Device& device, bool tiny) {
  if (tiny) return std::size_t{1} << 20;
  return std::min(std::size_t{4} << 30, device.memory().available / 8) / 4096 * 4096;
}

void probe_copies(Device& device, std::size_t bytes) {
  const Buffer a = device.allocate(bytes), b = device.allocate(bytes);
  const std::size_t host_bytes = std::min(bytes, std::size_t{256} << 20);
  const Buffer host = device.allocate_host(host_bytes);
  const StreamRef stream = device.stream();
  const auto probe = [&](const char* name, void* to, const void* from, std::size_t n, int times) {
    const double s = device_seconds(stream, [&] { device.copy(to, from, n, stream); });
    Record("probe", name).number("gb_s", static_cast<double>(n) * times / s * 1e-9);
  };
  probe("device copy, read and written", a.data(), b.data(), bytes, 2);
  probe("pinned host to device", a.data(), host.data(), host_bytes, 1);
  probe("device to pinned host", host.data(), a.data(), host_bytes, 1);
}

double probe_gemm(Device& device, Ops& ops, std::int64_t n) {
  const Buffer x = device.allocate(n * n * 2), w = device.allocate(n * n * 2),
               out = device.allocate(n * n * 2);
  const auto matrix = [&](const Buffer& b) { return TensorView(b.data(), DType::bf16, {n, n}); };
  fill_bf16(matrix(x), 1.f, device.stream());
  fill_bf16(matrix(w), 0.02f, device.stream());
  const double s = device_seconds(
      device.stream(), [&] { ops.linear(matrix(out), matrix(x), matrix(w), {}, device.stream()); });
  const double flops =
      2. * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / s;
  Record("probe", "cuBLASLt bf16, square of " + std::to_string(n)).number("tflop_s", flops * 1e-12);
  return flops;
}

void probe_launches(Device& device) {
  constexpr int kLaunches = 1000;
  const StreamRef stream = device.stream();
  const auto launch_many = [&] {
    for (int i = 0; i < kLaunches; ++i) launch_empty(stream);
  };
  Record("probe", "empty kernel, one after another")
      .number("us", device_seconds(stream, launch_many) / kLaunches * 1e6);
  const auto many = device.capture(launch_many),
             one = device.capture([&] { launch_empty(stream); });
  Record("probe", "empty kernel inside a graph")
      .number("us", device_seconds(stream, [&] { many->replay(stream); }) / kLaunches * 1e6);
  const auto waiting = device.capture([&] {
    for (int i = 0; i < kLaunches; ++i)
      CUDA_CHECK(cuda::launch(waiting_kernel, dim3(1), dim3(32), 0, native(stream)));
  });
  Record("probe", "waiting kernel inside a graph, begun ahead")
      .number("us", device_seconds(stream, [&] { waiting->replay(stream); }) / kLaunches * 1e6);
  Record("probe", "graph of one empty kernel")
      .number("us", device_seconds(stream,
                                   [&] {
                                     for (int i = 0; i < kLaunches; ++i) one->replay(stream);
                                   }) /
                        kLaunches * 1e6);
}

}  // namespace

double device_seconds(StreamRef stream, const std::function<void()>& body, int repeats,
                      int bodies_per_repeat) {
  const cuda::EventHandle begin = cuda::create_event(true), end = cuda::create_event(true);
  body();
  std::vector<double> seconds;
  for (int r = 0; r < repeats; ++r) {
    CUDA_CHECK(cudaEventRecord(begin.get(), native(stream)));
    for (int i = 0; i < bodies_per_repeat; ++i) body();
    CUDA_CHECK(cudaEventRecord(end.get(), native(stream)));
    CUDA_CHECK(cudaEventSynchronize(end.get()));
    seconds.push_back(cuda::seconds_between(begin, end) / bodies_per_repeat);
  }
  std::nth_element(seconds.begin(), seconds.begin() + repeats / 2, seconds.end());
  return seconds[static_cast<std::size_t>(repeats / 2)];
}

void fill_bf16(TensorView tensor, float scale, StreamRef stream) {
  CUDA_CHECK(cuda::launch_with(nullptr, fill_kernel, dim3(kBlocks), dim3(kThreads), 0,
                               native(stream), static_cast<__nv_bfloat16*>(tensor.data()),
                               tensor.numel(), scale));
}

void fill_codes(TensorView tensor, StreamRef stream) {
  CUDA_CHECK(cuda::launch_with(nullptr, fill_codes_kernel, dim3(kBlocks), dim3(kThreads), 0,
                               native(stream), static_cast<std::uint8_t*>(tensor.data()),
                               static_cast<std::int64_t>(tensor.bytes())));
}

void launch_pause(double seconds, StreamRef stream) {
  // A turn sleeps 20 to 40 ns; the emulation has no clock of its own, and needs no pause.
#ifdef __CUDACC__
  const auto turns = static_cast<int>(seconds / 30e-9);
#else
  const int turns = seconds > 0 ? 1 : 0;
#endif
  CUDA_CHECK(
      cuda::launch_with(nullptr, pause_kernel, dim3(1), dim3(1), 0, native(stream), turns));
}

void profile(const std::string& name, const std::function<void()>& body, StreamRef stream) {
  CUDA_CHECK(cudaStreamSynchronize(native(stream)));
#ifdef __CUDACC__
  CUDA_CHECK(cudaProfilerStart());
#endif
  body();
  CUDA_CHECK(cudaStreamSynchronize(native(stream)));
#ifdef __CUDACC__
  CUDA_CHECK(cudaProfilerStop());
#endif
  Record("profiled", name);
}

void read_bytes(const void* data, std::size_t bytes, StreamRef stream) {
  CUDA_CHECK(cuda::launch_with(nullptr, read_kernel, dim3(kBlocks), dim3(kThreads), 0,
                               native(stream), static_cast<const uint4*>(data),
                               static_cast<std::int64_t>(bytes / 16),
                               static_cast<unsigned*>(nullptr)));
}

void launch_empty(StreamRef stream) {
  CUDA_CHECK(cuda::launch_with(nullptr, empty_kernel, dim3(1), dim3(32), 0, native(stream)));
}

double probe_read(Device& device, bool tiny) {
  const std::size_t bytes = probe_bytes(device, tiny);
  const Buffer memory = device.allocate_zeroed(bytes);
  const double s =
      device_seconds(device.stream(), [&] { read_bytes(memory.data(), bytes, device.stream()); });
  const double rate = static_cast<double>(bytes) / s;
  Record("probe", "device memory read").number("gb_s", rate * 1e-9);
  return rate;
}

GpuLimits probe_gpu(Device& device, Ops& ops, bool tiny) {
  GpuLimits limits;
  limits.read_bytes = probe_read(device, tiny);
  probe_copies(device, probe_bytes(device, tiny) / 2);
  limits.bf16_flops = probe_gemm(device, ops, tiny ? 32 : 4096);
  if (!tiny) limits.bf16_flops = std::max(limits.bf16_flops, probe_gemm(device, ops, 8192));
  probe_launches(device);
  return limits;
}

}  // namespace quire::perf
