#pragma once
// The few tokens of a row that can matter, found through its groups' maxima (row_summary.cuh), in
// shared memory.

#include "cuda/device/ordered_key.cuh"
#include "cuda/kernels/row_summary.cuh"

namespace quire::cuda {

constexpr int kCandidateThreads = 256;
constexpr int kMaxCandidates = 4096;
constexpr float kMassUnit = 1.f / (1ull << 40);  // probabilities as integers: sums without an order
constexpr float kLowest = -3.402823466e38f;      // −inf is forbidden

__device__ __forceinline__ unsigned long long mass_of(float scaled, float top) {
  return static_cast<unsigned long long>(__expf(scaled - top) / kMassUnit);
}
// Of all mass, what top_p leaves at least.
__device__ __forceinline__ unsigned long long nucleus(unsigned long long total, float top_p) {
  return max(1ull, static_cast<unsigned long long>(static_cast<double>(total) * top_p));
}

// In dynamic shared memory.
struct Candidates {
  float* value;  // [kMaxCandidates], scaled
  int* token;
  int* groups;  // [Summaries::groups()]

  static std::size_t bytes(const Summaries& s) {
    return kMaxCandidates * (sizeof(float) + sizeof(int)) +
           static_cast<std::size_t>(s.segments) * kGroupsOfSegment * sizeof(int);
  }
  __device__ __forceinline__ explicit Candidates(float* memory)
      : value(memory),
        token(reinterpret_cast<int*>(memory + kMaxCandidates)),
        groups(reinterpret_cast<int*>(memory + 2 * kMaxCandidates)) {}
};

// What a selection goes over: visit(take) hands each of the thread's entries to take(value, token).
struct CandidateList {
  const float* value;
  const int* token;
  int count;
  template <class Take>
  __device__ __forceinline__ void visit(const Take& take) const {
    for (int i = threadIdx.x; i < count; i += kCandidateThreads) take(value[i], token[i]);
  }
};
struct WholeRow {
  const float* row;
  int vocab;
  float factor;
  template <class Take>
  __device__ __forceinline__ void visit(const Take& take) const {
    for (int i = threadIdx.x; i < vocab; i += kCandidateThreads) take(scaled_of(row[i], factor), i);
  }
};

// Lists the tokens of at least `bound`, of which also(value, token) is told too; values are scaled.
// Returns how many there are, which may be more than the list holds. All threads call it, once in a
// kernel.
template <class Also>
__device__ int gather(const Summaries& s, int r, float factor, float bound, const Candidates& to,
                      const Also& also) {
  SHARED(groups, int);
  SHARED(tokens, int);
  if (threadIdx.x == 0) groups = tokens = 0;
  __syncthreads();
  const float* tops = s.group_top + static_cast<std::int64_t>(r) * s.groups();
  for (int g = threadIdx.x; g < s.groups(); g += kCandidateThreads) {
    if (scaled_of(tops[g], factor) >= bound) to.groups[atomicAdd(&groups, 1)] = g;
  }
  __syncthreads();
  constexpr int kRuns = kGroup / 4;
  for (int i = threadIdx.x; i < groups * kRuns; i += kCandidateThreads) {
    const int first = Summaries::first_of_group(to.groups[i / kRuns]) + i % kRuns * 128;
    float v[4];
    s.load(v, s.row(r), first);
    for (int k = 0; k < 4; ++k) {
      const float value = scaled_of(v[k], factor);
      if (!(value >= bound)) continue;
      const int at = atomicAdd(&tokens, 1);
      if (at < kMaxCandidates) {
        to.value[at] = value;
        to.token[at] = first + k;
      }
      also(value, first + k);
    }
  }
  __syncthreads();
  return tokens;
}

// No token below it is among the k largest; −inf where groups are too few to tell.
__device__ inline float bound_of_largest(const Summaries& s, int r, float factor, int k) {
  if (k > s.groups()) return -INFINITY;
  const float* tops = s.group_top + static_cast<std::int64_t>(r) * s.groups();
  return reached_by_largest<kCandidateThreads>(k, [&](const auto& take) {
    for (int g = threadIdx.x; g < s.groups(); g += kCandidateThreads)
      take(scaled_of(tops[g], factor));
  });
}

}  // namespace quire::cuda
