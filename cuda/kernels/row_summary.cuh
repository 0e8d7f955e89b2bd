#pragma once
// What one pass over rows of logits leaves behind, so that later steps need not read them whole
// again: of each segment its maximum, its mass and the winner of its draws, of each group of 64 its
// maximum. A warp has a segment at a time and nothing depends on which, so the bits of a row do not
// depend on how its segments were shared out.

#include <algorithm>

#include "backend/philox.h"
#include "cuda/device/block_sum.cuh"
#include "cuda/device/exp2.cuh"
#include "cuda/device/vec.cuh"

namespace quire::cuda {

constexpr int kSegment = 2048, kPiece = 512;  // tokens: of a warp; of a warp at a time
constexpr int kGroupsOfSegment = 32, kGroup = kSegment / kGroupsOfSegment;
constexpr float kToLog2 = 1.44269504f;

// value · factor, never contracted with what follows: a logit has the same bits everywhere.
__device__ __forceinline__ float scaled_of(float value, float factor) {
  return __fmaf_rn(value, factor, 0.f);
}

struct Best {
  float value;
  int token;
};
constexpr Best kNobody{-INFINITY, 0x7fffffff};

// The larger value; of equal ones the smaller token.
__device__ __forceinline__ Best better(Best a, Best b) {
  return b.value > a.value || (b.value == a.value && b.token < a.token) ? b : a;
}
__device__ __forceinline__ Best warp_best(Best mine) {
  for (int lanes = 16; lanes != 0; lanes /= 2) {
    mine = better(mine, {__shfl_xor_sync(0xffffffffu, mine.value, lanes),
                         __shfl_xor_sync(0xffffffffu, mine.token, lanes)});
  }
  return mine;
}

struct RowSegment {
  float top;    // +inf: one of its logits is NaN or +inf
  float mass;   // Σ e^((logit − top) · factor)
  Best winner;  // of the logits or of the draws; kNobody where there are none
};

// Rows f32 [rows, vocab]; a row's groups are in the order of its segments.
struct Summaries {
  const float* logits;
  std::int64_t row_stride;
  int vocab, segments;  // of a row
  bool aligned;         // rows at multiples of 16 bytes
  RowSegment* segment;  // [rows, segments]
  float* group_top;     // [rows, segments · kGroupsOfSegment]

  static std::int64_t floats_of_row(std::int64_t vocab) {
    return (vocab + kSegment - 1) / kSegment *
           (kGroupsOfSegment + static_cast<std::int64_t>(sizeof(RowSegment) / sizeof(float)));
  }
  // Of logits f32 [rows, vocab]; the scratch has floats_of_row() for each row.
  Summaries(const TensorView& rows, float* scratch)
      : logits(static_cast<const float*>(rows.data())),
        row_stride(rows.stride(0)),
        vocab(static_cast<int>(rows.extent(1))),
        segments((vocab + kSegment - 1) / kSegment),
        aligned(is_aligned(rows)),
        segment(reinterpret_cast<RowSegment*>(scratch)),
        group_top(scratch + rows.extent(0) * segments *
                                static_cast<std::int64_t>(sizeof(RowSegment) / sizeof(float))) {}

  __device__ __forceinline__ int groups() const { return segments * kGroupsOfSegment; }
  __device__ __forceinline__ const float* row(int r) const { return logits + r * row_stride; }

  // Four neighbours; −inf behind the end.
  __device__ __forceinline__ void load(float (&v)[4], const float* row, int token) const {
    if (aligned && token + 4 <= vocab) {
      const auto four = *reinterpret_cast<const Vec<float, 4>*>(row + token);
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] = four.at[i];
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] = token + i < vocab ? row[token + i] : -INFINITY;
    }
  }
  // The first token of a group's sixteen runs of four; run i lies 128 · i further.
  __device__ __forceinline__ static int first_of_group(int group) {
    return group / kGroupsOfSegment * kSegment + group % kGroupsOfSegment * 4;
  }
};

// A draw: the largest of logit · factor + noise.
struct Race {
  std::uint64_t seed;
  std::int64_t position;
  float factor;
  float floor = -INFINITY;  // what some token of the row has reached: whoever cannot is passed over

  __device__ __forceinline__ float score(float logit, int token) const {
    return scaled_of(logit, factor) + gumbel_noise(seed, position, token);
  }

  // Four neighbours of every lane, of which one call of the generator serves all. The noise of a
  // word is below −log(word / 2³²), so most tokens cost an exponential and no logarithm.
  __device__ __forceinline__ Best run(Best best, const float (&logits)[4], int token) {
    const Philox random =
        philox(seed, static_cast<std::uint32_t>(token) / 4, static_cast<std::uint64_t>(position));
    unsigned may = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float room = exp2_approximate(__fmaf_rn(logits[i], factor * kToLog2, -floor * kToLog2));
      const float word = __uint_as_float((random.word[i] >> 9) + 0x3f800000u);  // 1 + word / 2³²
      may |= word <= __fmaf_rn(room, 1.01f, 1.00001f) ? 1u << i : 0u;
    }
    while (__any_sync(0xffffffffu, may != 0)) {
      float reached = -INFINITY;
      if (may != 0) {
        const int i = __ffs(static_cast<int>(may)) - 1;
        const float logit =
            i < 2 ? (i == 0 ? logits[0] : logits[1]) : (i == 2 ? logits[2] : logits[3]);
        const std::uint32_t word = i < 2 ? (i == 0 ? random.word[0] : random.word[1])
                                         : (i == 2 ? random.word[2] : random.word[3]);
        reached = scaled_of(logit, factor) - logf(exponential_of(word));
        best = better(best, {reached, token + i});
        may &= may - 1;
      }
      floor = fmaxf(floor, warp_reduce(reached, Max{}));
    }
    return best;
  }
};

// What is asked of a row's segments.
struct RowWork {
  bool races, masses, greedy;
  float factor;  // of masses
};

// One warp, one segment of row r. The floor of the race is carried from one to the next.
__device__ inline void summarize_segment(const Summaries& s, int r, int index, const RowWork& work,
                                         Race& race) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float* row = s.row(r);
  const float to_log2 = work.factor * kToLog2;
  float top = -INFINITY, group_top = -INFINITY, mass = 0.f;
  Best best = kNobody;
  bool is_number = true;
#pragma unroll 1
  for (int piece = index * kSegment; piece < (index + 1) * kSegment; piece += kPiece) {
    float v[kPiece / 128][4];
#pragma unroll
    for (int q = 0; q < kPiece / 128; ++q) s.load(v[q], row, piece + q * 128 + lane * 4);
    float mine = -INFINITY;
#pragma unroll
    for (int q = 0; q < kPiece / 128; ++q) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        is_number &= v[q][i] < INFINITY;
        mine = fmaxf(mine, v[q][i]);
      }
    }
    group_top = fmaxf(group_top, mine);
    if (work.greedy && mine > best.value) {  // the lane's first that reaches it
      int first = 0x7fffffff;
#pragma unroll
      for (int q = kPiece / 128 - 1; q >= 0; --q) {
#pragma unroll
        for (int i = 3; i >= 0; --i)
          first = v[q][i] == mine ? piece + q * 128 + lane * 4 + i : first;
      }
      best = {mine, first};
    }
    if (work.masses) {
      const float grown = fmaxf(top, warp_reduce(mine, Max{}));
      if (grown > -INFINITY) {
        const float base = grown * to_log2;
        mass *= exp2_approximate(__fmaf_rn(top, to_log2, -base));
#pragma unroll
        for (int q = 0; q < kPiece / 128; ++q) {
#pragma unroll
          for (int i = 0; i < 4; ++i) mass += exp2_approximate(__fmaf_rn(v[q][i], to_log2, -base));
        }
      }
      top = grown;
    }
    if (work.races) {
#pragma unroll
      for (int q = 0; q < kPiece / 128; ++q)
        best = race.run(best, v[q], piece + q * 128 + lane * 4);
    }
  }
  s.group_top[static_cast<std::int64_t>(r) * s.groups() + index * kGroupsOfSegment + lane] =
      group_top;
  top = warp_reduce(group_top, Max{});
  mass = warp_reduce(mass, Add{});
  best = warp_best(best);
  if (__any_sync(0xffffffffu, !is_number)) top = INFINITY;
  if (lane == 0) s.segment[static_cast<std::int64_t>(r) * s.segments + index] = {top, mass, best};
}

// Warps of a row together, over blocks too.
constexpr int kSummaryThreads = 128;
inline dim3 summary_grid(const Summaries& s, std::int64_t rows, int processors) {
  constexpr int kWarps = kSummaryThreads / 32;
  const std::int64_t most = (s.segments + kWarps - 1) / kWarps;
  const std::int64_t wanted = (4 * processors + rows - 1) / rows;
  return dim3(static_cast<unsigned>(std::clamp<std::int64_t>(wanted, 1, most)),
              static_cast<unsigned>(rows));
}
__device__ inline void summarize_row(const Summaries& s, const RowWork& work, Race race) {
  constexpr int kWarps = kSummaryThreads / 32;
  const int warp = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  for (int i = warp; i < s.segments; i += static_cast<int>(gridDim.x) * kWarps)
    summarize_segment(s, static_cast<int>(blockIdx.y), i, work, race);
}

}  // namespace quire::cuda
