// Log-probabilities of what was drawn.

#include "cuda/device/block_sum.cuh"
#include "cuda/device/radix_select.cuh"
#include "cuda/device/vec.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;

struct LogProbArgs {
  View<std::int32_t, 2> top_ids;
  View<float, 2> top_values;
  float* token_value;
  std::int32_t* token_rank;
  View<const float, 2> logits;
  const std::int32_t* tokens;
  int k;
};

// Descending by value, ascending by token: larger comes first. 64 bits so that a block can take the
// maximum.
__device__ __forceinline__ unsigned long long order_of(float value, int token) {
  return static_cast<unsigned long long>(ordered_key(value)) << 32 |
         (0xffffffffu - static_cast<unsigned>(token));
}

__device__ unsigned long long block_max(unsigned long long value) {
  SHARED(parts, unsigned long long[kThreads / 32]);
  for (int lanes = 16; lanes != 0; lanes /= 2)
    value = max(value, __shfl_xor_sync(0xffffffffu, value, lanes));
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  unsigned long long best = parts[0];
  for (int i = 1; i < kThreads / 32; ++i) best = max(best, parts[i]);
  return best;
}

// One block per row: one pass for the normalizer, one per wanted entry.
__global__ void __launch_bounds__(kThreads)
    log_probs_kernel(const __grid_constant__ LogProbArgs a) {
  const int r = blockIdx.x, vocab = static_cast<int>(a.logits.extent[1]);
  const float* row = &a.logits(r, 0);
  float top = -3.402823466e38f;
  for (int i = threadIdx.x; i < vocab; i += kThreads) top = fmaxf(top, row[i]);
  top = block_reduce<kThreads>(top, Max{});
  float sum = 0.f;
  for (int i = threadIdx.x; i < vocab; i += kThreads) sum += __expf(row[i] - top);
  const float log_total = top + logf(block_reduce<kThreads>(sum, Add{}));

  const float chosen = row[max(a.tokens[r], 0)];  // kNoToken: nobody reads it
  float larger = 0.f;
  for (int i = threadIdx.x; i < vocab; i += kThreads) larger += row[i] > chosen ? 1.f : 0.f;
  larger = block_reduce<kThreads>(larger, Add{});
  if (threadIdx.x == 0) {
    a.token_value[r] = chosen - log_total;
    a.token_rank[r] = 1 + static_cast<int>(larger);
  }
  unsigned long long last = ~0ull;
  for (int j = 0; j < a.k; ++j) {
    unsigned long long best = 0;
    for (int i = threadIdx.x; i < vocab; i += kThreads) {
      const unsigned long long order = order_of(row[i], i);
      if (order < last) best = max(best, order);
    }
    last = block_max(best);
    if (threadIdx.x == 0) {
      const auto token = static_cast<int>(0xffffffffu - static_cast<unsigned>(last));
      a.top_ids(r, j) = token;
      a.top_values(r, j) = row[token] - log_total;
    }
  }
}

template <class T>
const T* data_of(const TensorView& tensor) {
  return static_cast<const T*>(tensor.data());
}

}  // namespace

void log_probs(TensorView top_ids, TensorView top_values, TensorView token_value,
               TensorView token_rank, TensorView logits, TensorView tokens, StreamRef stream) {
  if (logits.extent(0) == 0) return;
  const auto k =
      top_ids.empty() ? 0 : static_cast<int>(std::min(top_ids.extent(1), logits.extent(1)));
  const LogProbArgs a{.top_ids = device_view<std::int32_t, 2>(top_ids),
                      .top_values = device_view<float, 2>(top_values),
                      .token_value = static_cast<float*>(token_value.data()),
                      .token_rank = static_cast<std::int32_t*>(token_rank.data()),
                      .logits = device_view<const float, 2>(logits),
                      .tokens = data_of<std::int32_t>(tokens),
                      .k = k};
  CUDA_CHECK(launch(log_probs_kernel, dim3(static_cast<unsigned>(logits.extent(0))), dim3(kThreads),
                    0, native(stream), a));
}

}  // namespace quire::cuda
