// Kernels with one bug each, and the host's bugs. `planted_bugs NAME` exits 0 when the bug went
// unnoticed, 1 for a wrong result, 2 when the emulation reports it, else as the sanitizer says.
// catch_bugs.py knows which configuration must catch which.

#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/device/async_copy.cuh"
#include "cuda/device/block.cuh"
#include "planted_box_bugs.h"
#include "planted_host_bugs.h"

using namespace quire::cuda;

namespace {

__global__ void out_of_bounds_shared(float* o) {
  SHARED(s, float[64]);
  s[threadIdx.x] = 1;
  __syncthreads();
  float* p = s;
  if (threadIdx.x == 0) p[64 + static_cast<int>(o[0])] = 5;
  o[threadIdx.x] = s[threadIdx.x];
}
__global__ void out_of_bounds_dynamic(float* o) {
  DYN_SHARED(s, float);
  s[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 0) s[64] = 5;
  o[threadIdx.x] = s[threadIdx.x];
}
__global__ void out_of_bounds_global(float* o) { o[threadIdx.x + (threadIdx.x == 63)] = 1; }
__global__ void misaligned_vector(float* o) {
  const float4 v = *reinterpret_cast<float4*>(o + (threadIdx.x == 3 ? 1 : 0));
  o[4 + threadIdx.x % 32] = v.x;
}
__global__ void uninitialized_shared(float* o) {
  SHARED(s, float[64]);
  if (threadIdx.x < 63) s[threadIdx.x] = 1;
  __syncthreads();
  o[threadIdx.x] = s[threadIdx.x];
}
__global__ void missing_barrier(float* o) {
  SHARED(s, float[64]);
  s[threadIdx.x] = static_cast<float>(threadIdx.x);
  o[threadIdx.x] = s[63 - threadIdx.x];
}
__global__ void missing_syncwarp(float* o) {
  SHARED(s, float[64]);
  s[threadIdx.x] = static_cast<float>(threadIdx.x);
  o[threadIdx.x] = s[threadIdx.x ^ 1];
}
__global__ void shuffle_as_barrier(float* o) {
  SHARED(s, float[64]);
  s[threadIdx.x] = static_cast<float>(threadIdx.x);
  __shfl_sync(~0u, 1, 0);
  o[threadIdx.x] = s[threadIdx.x ^ 1];
}
__global__ void overwritten_too_early(float* o) {
  SHARED(s, float[64]);
  float sum = 0;
  for (int i = 0; i < 3; ++i) {
    s[threadIdx.x] = static_cast<float>(threadIdx.x * (i + 1));
    __syncthreads();
    sum += s[63 - threadIdx.x];
  }
  o[threadIdx.x] = sum;
}
__global__ void blocks_add_without_atomic(float* o) {
  if (threadIdx.x == 0) o[0] = o[0] + 1;
}
__global__ void global_without_barrier(float* o) {
  o[threadIdx.x] = static_cast<float>(threadIdx.x);
  o[64 + threadIdx.x] = o[63 - threadIdx.x];
}
__global__ void cub_storage_reused(float* o) {
  using Reduce = cub::BlockReduce<float, 64>;
  SHARED(storage, Reduce::TempStorage);
  const float a = Reduce(storage).Sum(1.f);
  const float b = Reduce(storage).Sum(2.f);
  if (threadIdx.x == 0) o[0] = a + b;
}
__global__ void divergent_barrier(float* o) {
  if (threadIdx.x < 32) __syncthreads();
  o[threadIdx.x] = 1;
}
__global__ void two_barriers(float* o) {
  if (threadIdx.x < 32) {
    o[threadIdx.x] = 1;
    __syncthreads();
  } else {
    o[threadIdx.x] = 2;
    __syncthreads();
  }
}
__global__ void half_the_mask(float* o) {
  if (threadIdx.x % 32 < 16) o[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.f, 1);
}
__global__ void caller_not_in_mask(float* o) { o[threadIdx.x] = __shfl_xor_sync(0xffffu, 1.f, 1); }
__global__ void exited_lane(float* o) {
  if (threadIdx.x == 63) return;
  o[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.f, 1);
}
__global__ void mixed_shuffles(float* o) {
  o[threadIdx.x] = threadIdx.x & 1 ? __shfl_xor_sync(~0u, 1.f, 1) : __shfl_down_sync(~0u, 1.f, 1);
}
__global__ void copy_without_wait(float* o) {
  SHARED(s, float4[16]);
  if (threadIdx.x < 16) {
    async_copy<16>(&s[threadIdx.x], o + threadIdx.x * 4);
    async_copy_commit();
  }
  __syncthreads();
  o[64 + threadIdx.x] = reinterpret_cast<float*>(s)[threadIdx.x];
  if (threadIdx.x < 16) async_copy_wait<0>();
}
__global__ void copy_without_barrier(float* o) {
  SHARED(s, float4[16]);
  if (threadIdx.x < 16) {
    async_copy<16>(&s[threadIdx.x], o + threadIdx.x * 4);
    async_copy_commit();
    async_copy_wait<0>();
  }
  o[64 + threadIdx.x] = reinterpret_cast<float*>(s)[63 - threadIdx.x];
}

struct Bug {
  void (*kernel)(float*);
  float (*expected)(int i);  // of o[64 + i] where second, else of o[i]; NaN: not looked at
  bool second = false;       // the buffer has 128 elements and results start at 64
  int blocks = 1;
};
float ones(int) { return 1; }
float same(int i) { return static_cast<float>(i); }
float reversed(int i) { return static_cast<float>(63 - i); }
float neighbour(int i) { return static_cast<float>(i ^ 1); }
float six_reversed(int i) { return static_cast<float>((63 - i) * 6); }
float four_first(int i) { return i == 0 ? 4.f : NAN; }
float sum_first(int i) { return i == 0 ? 192.f : NAN; }
float unseen(int) { return NAN; }

const std::map<std::string, Bug> kBugs = {
    {"out_of_bounds_shared", {out_of_bounds_shared, ones}},
    {"out_of_bounds_dynamic", {out_of_bounds_dynamic, ones}},
    {"out_of_bounds_global", {out_of_bounds_global, unseen}},
    {"misaligned_vector", {misaligned_vector, unseen}},
    {"uninitialized_shared", {uninitialized_shared, ones}},
    {"missing_barrier", {missing_barrier, reversed}},
    {"missing_syncwarp", {missing_syncwarp, neighbour}},
    {"shuffle_as_barrier", {shuffle_as_barrier, neighbour}},
    {"overwritten_too_early", {overwritten_too_early, six_reversed}},
    {"blocks_add_without_atomic", {blocks_add_without_atomic, four_first, false, 4}},
    {"global_without_barrier", {global_without_barrier, reversed, true}},
    {"cub_storage_reused", {cub_storage_reused, sum_first}},
    {"divergent_barrier", {divergent_barrier, unseen}},
    {"two_barriers", {two_barriers, unseen}},
    {"half_the_mask", {half_the_mask, unseen}},
    {"caller_not_in_mask", {caller_not_in_mask, unseen}},
    {"exited_lane", {exited_lane, unseen}},
    {"mixed_shuffles", {mixed_shuffles, unseen}},
    {"copy_without_wait", {copy_without_wait, same, true}},
    {"copy_without_barrier", {copy_without_barrier, reversed, true}},
};

int run_kernel(const std::string& name, const Bug& bug) {
  std::vector<float> o(bug.second ? 128 : 64, 0.f);
  if (name.starts_with("copy_")) {
    for (std::size_t i = 0; i < o.size(); ++i) o[i] = static_cast<float>(i);
  }
  const std::size_t bytes = o.size() * sizeof(float);
  void* memory = nullptr;
  cudaMalloc(&memory, bytes);
  cudaMemcpy(memory, o.data(), bytes, cudaMemcpyHostToDevice);
  if (launch_with(nullptr, bug.kernel, dim3(static_cast<unsigned>(bug.blocks)), dim3(64), 256,
                  nullptr, static_cast<float*>(memory)) != cudaSuccess)
    return 2;
  cudaMemcpy(o.data(), memory, bytes, cudaMemcpyDeviceToHost);
  for (int i = 0; i < 64; ++i) {
    const float expected = bug.expected(i),
                got = o[static_cast<std::size_t>(bug.second ? 64 + i : i)];
    if (expected == expected && got != expected) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    for (const auto& [name, bug] : kBugs) std::puts(name.c_str());
    for (const auto* bugs : {&host_bugs(), &box_bugs(), &dependent_bugs()})
      for (const auto& [name, bug] : *bugs) std::puts(name.c_str());
    return 0;
  }
  const std::string name = argv[1];
  try {
    for (const auto* bugs : {&host_bugs(), &box_bugs(), &dependent_bugs()})
      if (const auto bug = bugs->find(name); bug != bugs->end()) return bug->second();
    return run_kernel(name, kBugs.at(name));
  } catch (const std::exception& error) {
    std::puts(error.what());
    return 2;
  }
}
