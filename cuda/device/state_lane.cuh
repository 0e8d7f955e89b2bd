#pragma once
// A head's state in registers: lines that depend on no other (columns of the delta rule's, rows of
// the scan's), four lanes to a line, of every 16 elements of it four to a lane.

#include "cuda/device/kernel.cuh"

namespace quire::cuda {

inline constexpr int kStateWarps = 4;                // of a block
inline constexpr int kStateLines = kStateWarps * 8;  // of a block

// kLength: the longest line; what is beyond the real one stays zero.
template <int kLength>
struct StateLane {
  static constexpr int kRuns = kLength / 16;
  float s[kRuns][4];
  int line, first;  // of s[0][0]; element [i][j] is first + 16 · i + j of the line
  int length;       // of the line, 0 where there is none

  __device__ __forceinline__ StateLane(int num_lines, int num_elements) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    line = static_cast<int>(blockIdx.x) * kStateLines + warp * 8 + lane / 4;
    first = lane % 4 * 4;
    length = line < num_lines ? num_elements : 0;
#pragma unroll
    for (auto& run : s) run[0] = run[1] = run[2] = run[3] = 0.f;
  }

  __device__ __forceinline__ bool has_line() const { return length > 0; }
  __device__ __forceinline__ bool is_first() const { return has_line() && first == 0; }

  // at(element) is where the line's element lies in memory.
  template <class At>
  __device__ __forceinline__ void read(const At& at) {
    for_each([&](int element, float& value) { value = static_cast<float>(at(element)); });
  }
  template <class State, class At>
  __device__ __forceinline__ void write(const At& at) {
    for_each([&](int element, float& value) { at(element) = State(value); });
  }
  // The same, and goes on from what was written.
  template <class State, class At>
  __device__ __forceinline__ void write_rounded(const At& at) {
    for_each([&](int element, float& value) {
      const State rounded(value);
      at(element) = rounded;
      value = static_cast<float>(rounded);
    });
  }

 protected:
  // The sum of parts over the line's lanes; all of them get it.
  static __device__ __forceinline__ float line_sum(const float (&part)[4]) {
    float sum = part[0] + part[1] + (part[2] + part[3]);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
  }

 private:
  template <class Apply>
  __device__ __forceinline__ void for_each(const Apply& apply) {
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int element = 16 * i + first + j;
        if (element < length) apply(element, s[i][j]);
      }
    }
  }
};

}  // namespace quire::cuda
