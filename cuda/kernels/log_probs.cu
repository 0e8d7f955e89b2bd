// Log-probabilities of what was drawn. Memory bound: the logits are read once, by as many blocks as
// there is room for; a block a row then reads the groups of tokens that can be among the best
// again.

#include "cuda/kernels/draws.h"

#include "cuda/kernels/launchers.h"
#include "cuda/kernels/row_candidates.cuh"
#include "cuda/runtime/capability.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

struct LogProbArgs {
  Summaries rows;
  View<std::int32_t, 2> top_ids;
  View<float, 2> top_values;
  float* token_value;
  std::int32_t* token_rank;
  const std::int32_t* tokens;
  int k;
};

__global__ void __launch_bounds__(kSummaryThreads)
    summarize_probs_kernel(const __grid_constant__ LogProbArgs a) {
  release_next_kernel();
  await_previous_kernel();
  const RowWork work{.races = false, .masses = true, .greedy = false, .factor = 1.f};
  summarize_row(a.rows, work, {});
}

// The logarithm of Σ e^logit, summed in one order.
__device__ float log_total_of(const Summaries& s, int r) {
  const RowSegment* segment = s.segment + static_cast<std::int64_t>(r) * s.segments;
  float top = -3.402823466e38f, mass = 0.f;
  for (int i = threadIdx.x; i < s.segments; i += kCandidateThreads)
    top = fmaxf(top, segment[i].top);
  top = block_reduce<kCandidateThreads>(top, Max{});
  for (int i = threadIdx.x; i < s.segments; i += kCandidateThreads)
    mass += segment[i].mass * exp2_approximate((segment[i].top - top) * kToLog2);
  return top + logf(block_reduce<kCandidateThreads>(mass, Add{}));
}

// How many tokens are likelier, from the groups that have one.
__device__ int count_larger(const Summaries& s, int r, float chosen) {
  constexpr int kRuns = kGroup / 4;
  const float* tops = s.group_top + static_cast<std::int64_t>(r) * s.groups();
  int larger = 0;
  for (int i = threadIdx.x; i < s.groups() * kRuns; i += kCandidateThreads) {
    if (!(tops[i / kRuns] > chosen)) continue;
    float v[4];
    s.load(v, s.row(r), Summaries::first_of_group(i / kRuns) + i % kRuns * 128);
    for (const float value : v) larger += value > chosen ? 1 : 0;
  }
  return block_total<kCandidateThreads>(larger);
}

__device__ __forceinline__ void store_top(const LogProbArgs& a, int r, int rank, Best entry,
                                          float log_total) {
  a.top_ids(r, rank) = entry.token;
  a.top_values(r, rank) = entry.value - log_total;
}

// Every entry counts those before it: that is its rank.
__device__ void rank_candidates(const LogProbArgs& a, int r, const CandidateList& list,
                                float log_total) {
  list.visit([&](float value, int token) {
    int rank = 0;
    for (int i = 0; i < list.count; ++i)
      rank += list.value[i] > value || (list.value[i] == value && list.token[i] < token) ? 1 : 0;
    if (rank < a.k) store_top(a, r, rank, {value, token}, log_total);
  });
}

// One pass an entry, where the list is too small: most of the row is forbidden, or equal, or k is
// larger than the number of groups.
__device__ void rank_row(const LogProbArgs& a, int r, float log_total) {
  SHARED(parts, Best[kCandidateThreads / 32]);
  const WholeRow row{a.rows.row(r), a.rows.vocab, 1.f};
  Best last{INFINITY, -1};
  for (int j = 0; j < a.k; ++j) {
    Best best{-INFINITY, 0x7fffffff};
    row.visit([&](float value, int token) {
      const bool behind = value < last.value || (value == last.value && token > last.token);
      if (behind) best = better(best, {value, token});
    });
    best = warp_best(best);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = best;
    __syncthreads();
    last = parts[0];
    for (int i = 1; i < kCandidateThreads / 32; ++i) last = better(last, parts[i]);
    __syncthreads();  // before the next entry's parts
    if (threadIdx.x == 0) store_top(a, r, j, last, log_total);
  }
}

// A block a row.
__global__ void __launch_bounds__(kCandidateThreads)
    log_probs_kernel(const __grid_constant__ LogProbArgs a) {
  release_next_kernel();
  await_previous_kernel();
  DYN_SHARED(memory, float);
  const Candidates list(memory);
  const int r = static_cast<int>(blockIdx.x);
  const float log_total = log_total_of(a.rows, r);
  const float chosen = a.rows.row(r)[max(a.tokens[r], 0)];  // kNoToken: nobody reads it
  const int larger = count_larger(a.rows, r, chosen);
  if (threadIdx.x == 0) {
    a.token_value[r] = chosen - log_total;
    a.token_rank[r] = 1 + larger;
  }
  if (a.k == 0) return;
  const float bound = bound_of_largest(a.rows, r, 1.f, a.k);
  const int count = bound > -INFINITY ? gather(a.rows, r, 1.f, bound, list, [](float, int) {})
                                      : kMaxCandidates + 1;
  if (count > kMaxCandidates) return rank_row(a, r, log_total);
  rank_candidates(a, r, {list.value, list.token, count}, log_total);
}

}  // namespace

void log_probs(TensorView top_ids, TensorView top_values, TensorView token_value,
               TensorView token_rank, TensorView logits, TensorView tokens, SplitScratch scratch,
               StreamRef stream) {
  const std::int64_t rows = logits.extent(0);
  const std::int64_t most = scratch.floats / Summaries::floats_of_row(logits.extent(1));
  const auto k =
      top_ids.empty() ? 0 : static_cast<int>(std::min(top_ids.extent(1), logits.extent(1)));
  for (std::int64_t first = 0; first < rows; first += most) {
    const std::int64_t last = std::min(rows, first + most);
    const auto of = [&](const TensorView& tensor) {
      return tensor.empty() ? tensor : tensor.rows(first, last);
    };
    const LogProbArgs a{.rows = Summaries(of(logits), scratch.data),
                        .top_ids = device_view<std::int32_t, 2>(of(top_ids)),
                        .top_values = device_view<float, 2>(of(top_values)),
                        .token_value = static_cast<float*>(of(token_value).data()),
                        .token_rank = static_cast<std::int32_t*>(of(token_rank).data()),
                        .tokens = static_cast<const std::int32_t*>(of(tokens).data()),
                        .k = k};
    CUDA_CHECK(launch(summarize_probs_kernel, summary_grid(a.rows, last - first, processor_count()),
                      dim3(kSummaryThreads), 0, native(stream), a));
    CUDA_CHECK(launch(log_probs_kernel, dim3(static_cast<unsigned>(last - first)),
                      dim3(kCandidateThreads), Candidates::bytes(a.rows), native(stream), a));
  }
}

}  // namespace quire::cuda
