// Draws: temperature, then min_p and top_k as a threshold, then top_p over what is left, then the
// largest logit plus Gumbel noise of (seed, position, token). One block per row; memory bound: two
// passes over the row, four more for each of top_k and top_p, which come from L2.

#include "backend/no_token.h"
#include "backend/philox.h"
#include "cuda/device/block_sum.cuh"
#include "cuda/device/radix_select.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 512;
constexpr float kMassUnit = 1.f / (1ull << 40);  // probabilities as integers: sums without an order

struct SampleParams {
  std::int32_t* tokens;
  const float* logits;
  std::int64_t row_stride;
  int vocab;
  const float *temperature, *top_p, *min_p;
  const std::int32_t* top_k;
  const std::uint64_t* seed;
  const std::int64_t* position;
};

struct Best {
  float value;
  int token;
};

// The larger value; of equal ones the smaller token.
__device__ __forceinline__ Best better(Best a, Best b) {
  return b.value > a.value || (b.value == a.value && b.token < a.token) ? b : a;
}

// Between two calls all threads meet: parts is used again.
__device__ Best block_best(Best mine) {
  SHARED(parts, Best[kThreads / 32]);
  for (int lanes = 16; lanes != 0; lanes /= 2) {
    const Best other{__shfl_xor_sync(0xffffffffu, mine.value, lanes),
                     __shfl_xor_sync(0xffffffffu, mine.token, lanes)};
    mine = better(mine, other);
  }
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
  __syncthreads();
  Best best = parts[0];
  for (int i = 1; i < kThreads / 32; ++i) best = better(best, parts[i]);
  return best;
}

template <class ScoreOf>
__device__ Best best_of_row(int vocab, ScoreOf score_of) {
  Best best{-INFINITY, 0x7fffffff};
  for (int i = threadIdx.x; i < vocab; i += kThreads) best = better(best, {score_of(i), i});
  return block_best(best);
}

// Entries of equal logit at the edge of the nucleus: the first of them in the order of the
// vocabulary stay.
struct Nucleus {
  std::uint32_t key;  // below it: out
  int ties_kept;      // of those equal to it
  int last_tie;       // the last token that is kept of them
};

__device__ int nth_tie(const float* row, int vocab, float factor, std::uint32_t key, int n) {
  SHARED(counts, int[kThreads]);
  SHARED(answer, int);
  // Contiguous, so that the order is the vocabulary's.
  const int per_thread = (vocab + kThreads - 1) / kThreads;
  const int begin = min(vocab, static_cast<int>(threadIdx.x) * per_thread),
            end = min(vocab, begin + per_thread);
  int mine = 0;
  for (int i = begin; i < end; ++i) mine += ordered_key(row[i] * factor) == key;
  counts[threadIdx.x] = mine;
  __syncthreads();
  int before = 0;
  for (int t = 0; t < static_cast<int>(threadIdx.x); ++t) before += counts[t];
  if (before < n && n <= before + mine) {
    for (int i = begin; i < end; ++i) {
      if (ordered_key(row[i] * factor) == key && ++before == n) answer = i;
    }
  }
  __syncthreads();
  return answer;
}

__device__ unsigned long long mass_of(float scaled, float top) {
  return static_cast<unsigned long long>(__expf(scaled - top) / kMassUnit);
}

__device__ Nucleus nucleus_of(const float* row, int vocab, float factor, float top,
                              std::uint32_t threshold, float top_p) {
  SHARED(total, unsigned long long);
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  unsigned long long mine = 0;
  for (int i = threadIdx.x; i < vocab; i += kThreads) {
    const float scaled = row[i] * factor;
    if (ordered_key(scaled) >= threshold) mine += mass_of(scaled, top);
  }
  atomicAdd(&total, mine);
  __syncthreads();
  const auto target =
      max(1ull, static_cast<unsigned long long>(static_cast<double>(total) * top_p));
  const Selection edge = radix_select<kThreads>(
      vocab, target, [&](int i) { return ordered_key(row[i] * factor); },
      [&](int i, std::uint32_t key) {
        return key >= threshold ? mass_of(row[i] * factor, top) : 0ull;
      });
  const unsigned long long each = max(1ull, mass_of(key_value(edge.key), top));
  const unsigned long long kept = (target - edge.above + each - 1) / each;
  const int ties = static_cast<int>(min(kept, 0x7fffffffull));
  return {edge.key, ties, nth_tie(row, vocab, factor, edge.key, ties)};
}

__global__ void __launch_bounds__(kThreads) sample_kernel(const __grid_constant__ SampleParams p) {
  const int r = blockIdx.x;
  const float* row = p.logits + r * p.row_stride;
  bool is_number = true;
  const Best top = best_of_row(p.vocab, [&](int i) {
    is_number &= row[i] < INFINITY;
    return row[i];
  });
  if (__syncthreads_or(!is_number)) {
    if (threadIdx.x == 0) p.tokens[r] = kNoToken;
    return;
  }
  if (p.temperature[r] <= 0.f) {
    if (threadIdx.x == 0) p.tokens[r] = top.token == 0x7fffffff ? 0 : top.token;
    return;
  }
  const float factor = 1.f / p.temperature[r], scaled_top = top.value * factor;
  std::uint32_t threshold = ordered_key(-3.402823466e38f);  // −inf is forbidden
  if (p.min_p[r] > 0.f) threshold = max(threshold, ordered_key(scaled_top + logf(p.min_p[r])));
  if (p.top_k[r] > 0 && p.top_k[r] < p.vocab) {
    const Selection kth = radix_select<kThreads>(
        p.vocab, static_cast<unsigned long long>(p.top_k[r]),
        [&](int i) { return ordered_key(row[i] * factor); },
        [](int, std::uint32_t) { return 1ull; });
    threshold = max(threshold, kth.key);
  }
  int last_tie = p.vocab;
  if (p.top_p[r] < 1.f) {
    const Nucleus nucleus = nucleus_of(row, p.vocab, factor, scaled_top, threshold, p.top_p[r]);
    threshold = nucleus.key;
    last_tie = nucleus.last_tie;
  }
  const Best winner = best_of_row(p.vocab, [&](int i) {
    const float scaled = row[i] * factor;
    const std::uint32_t key = ordered_key(scaled);
    if (key < threshold || (key == threshold && i > last_tie)) return -INFINITY;
    return scaled + gumbel_noise(p.seed[r], p.position[r], i);
  });
  if (threadIdx.x == 0) p.tokens[r] = winner.value == -INFINITY ? 0 : winner.token;
}

}  // namespace

void sample(TensorView tokens, TensorView logits, const SamplingArgs& args, StreamRef stream) {
  if (logits.extent(0) == 0) return;
  const SampleParams p{.tokens = static_cast<std::int32_t*>(tokens.data()),
                       .logits = static_cast<const float*>(logits.data()),
                       .row_stride = logits.stride(0),
                       .vocab = static_cast<int>(logits.extent(1)),
                       .temperature = static_cast<const float*>(args.temperature.data()),
                       .top_p = static_cast<const float*>(args.top_p.data()),
                       .min_p = static_cast<const float*>(args.min_p.data()),
                       .top_k = static_cast<const std::int32_t*>(args.top_k.data()),
                       .seed = static_cast<const std::uint64_t*>(args.seed.data()),
                       .position = static_cast<const std::int64_t*>(args.position.data())};
  CUDA_CHECK(launch(sample_kernel, dim3(static_cast<unsigned>(logits.extent(0))), dim3(kThreads), 0,
                    native(stream), p));
}

}  // namespace quire::cuda
