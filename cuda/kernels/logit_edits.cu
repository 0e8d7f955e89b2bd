// Changes to logits before a draw, and what penalties remember.

#include <cmath>

#include "cuda/device/vec.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;

unsigned blocks_for(std::int64_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

// x: rows of the list, y: pieces of the vocabulary.
__global__ void __launch_bounds__(kThreads)
    mask_kernel(View<float, 2> logits, View<const std::uint32_t, 2> words,
                const std::int32_t* rows) {
  release_next_kernel();
  await_previous_kernel();
  const int token = blockIdx.y * kThreads + threadIdx.x;
  if (token >= logits.extent[1]) return;
  if ((words(blockIdx.x, token / 32) >> (token % 32) & 1u) == 0)
    logits(rows[blockIdx.x], token) = -INFINITY;
}

__global__ void __launch_bounds__(kThreads)
    bias_kernel(View<float, 2> logits, const std::int32_t* row, const std::int32_t* token,
                const float* value, int count) {
  release_next_kernel();
  await_previous_kernel();
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < count) atomicAdd(&logits(row[i], token[i]), value[i]);
}

struct Penalties {
  View<const std::uint16_t, 2> counts;
  const std::int32_t *rows, *slots, *drafts;
  int num_drafts;
  const float *repetition, *frequency, *presence;
};

__global__ void __launch_bounds__(kThreads)
    penalty_kernel(View<float, 2> logits, const __grid_constant__ Penalties p) {
  release_next_kernel();
  await_previous_kernel();
  const int token = blockIdx.y * kThreads + threadIdx.x;
  if (token >= logits.extent[1]) return;
  const std::uint16_t seen = p.counts(p.slots[blockIdx.x], token);
  int times = seen & kMostSeen;
  for (int d = 0; d < p.num_drafts; ++d)
    times += p.drafts[static_cast<int>(blockIdx.x) * p.num_drafts + d] == token;
  if (times == 0 && (seen & kSeenInPrompt) == 0) return;
  const int row = p.rows[blockIdx.x];
  float& logit = logits(row, token);
  float value = logit > 0.f ? logit / p.repetition[row] : logit * p.repetition[row];
  value -= p.frequency[row] * static_cast<float>(times);
  if (times > 0) value -= p.presence[row];
  logit = value;
}

__global__ void __launch_bounds__(kThreads)
    set_counts_kernel(View<std::uint16_t, 2> counts, const std::int32_t* slot,
                      const std::int32_t* token, const std::int32_t* value, int count) {
  release_next_kernel();
  await_previous_kernel();
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < count) counts(slot[i], token[i]) = static_cast<std::uint16_t>(value[i]);
}

// Two counts share a word, which is the least that a swap takes.
__device__ void count_once(std::uint16_t* entry) {
  const auto address = reinterpret_cast<std::uintptr_t>(entry);
  auto* word = reinterpret_cast<unsigned*>(address & ~std::uintptr_t{3});
  const int shift = address % 4 == 0 ? 0 : 16;
  unsigned old = atomicAdd(word, 0u);
  while ((old >> shift & kMostSeen) < kMostSeen) {
    const unsigned found = atomicCAS(word, old, old + (1u << shift));
    if (found == old) return;
    old = found;
  }
}

__global__ void __launch_bounds__(kThreads)
    count_kernel(View<std::uint16_t, 2> counts, const std::int32_t* slot, const std::int32_t* token,
                 int count) {
  release_next_kernel();
  await_previous_kernel();
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < count && slot[i] >= 0 && token[i] >= 0) count_once(&counts(slot[i], token[i]));
}

template <class T>
const T* data_of(const TensorView& tensor) {
  return static_cast<const T*>(tensor.data());
}

dim3 grid_of(const TensorView& rows, const TensorView& logits) {
  return dim3(static_cast<unsigned>(rows.extent(0)), blocks_for(logits.extent(1)));
}

}  // namespace

void mask_logits(TensorView logits, const MaskArgs& args, StreamRef stream) {
  if (args.rows.extent(0) == 0) return;
  CUDA_CHECK(launch(mask_kernel, grid_of(args.rows, logits), dim3(kThreads), 0, native(stream),
                    device_view<float, 2>(logits), device_view<const std::uint32_t, 2>(args.words),
                    data_of<std::int32_t>(args.rows)));
}

void bias_logits(TensorView logits, const BiasArgs& args, StreamRef stream) {
  const auto count = static_cast<int>(args.rows.extent(0));
  if (count == 0) return;
  CUDA_CHECK(launch(bias_kernel, dim3(blocks_for(count)), dim3(kThreads), 0, native(stream),
                    device_view<float, 2>(logits), data_of<std::int32_t>(args.rows),
                    data_of<std::int32_t>(args.tokens), data_of<float>(args.values), count));
}

void penalize_logits(TensorView logits, const PenaltyArgs& args, StreamRef stream) {
  if (args.rows.extent(0) == 0) return;
  const Penalties p{.counts = device_view<const std::uint16_t, 2>(args.counts),
                    .rows = data_of<std::int32_t>(args.rows),
                    .slots = data_of<std::int32_t>(args.slots),
                    .drafts = data_of<std::int32_t>(args.drafts),
                    .num_drafts = args.drafts.empty() ? 0 : static_cast<int>(args.drafts.extent(1)),
                    .repetition = data_of<float>(args.repetition),
                    .frequency = data_of<float>(args.frequency),
                    .presence = data_of<float>(args.presence)};
  CUDA_CHECK(launch(penalty_kernel, grid_of(args.rows, logits), dim3(kThreads), 0, native(stream),
                    device_view<float, 2>(logits), p));
}

void set_token_counts(TensorView counts, const TokenCountArgs& args, StreamRef stream) {
  const auto count = static_cast<int>(args.slots.extent(0));
  if (count == 0) return;
  CUDA_CHECK(launch(set_counts_kernel, dim3(blocks_for(count)), dim3(kThreads), 0, native(stream),
                    device_view<std::uint16_t, 2>(counts), data_of<std::int32_t>(args.slots),
                    data_of<std::int32_t>(args.tokens), data_of<std::int32_t>(args.counts), count));
}

void count_tokens(TensorView counts, TensorView slots, TensorView tokens, StreamRef stream) {
  const auto count = static_cast<int>(slots.extent(0));
  if (count == 0) return;
  CUDA_CHECK(launch(count_kernel, dim3(blocks_for(count)), dim3(kThreads), 0, native(stream),
                    device_view<std::uint16_t, 2>(counts), data_of<std::int32_t>(slots),
                    data_of<std::int32_t>(tokens), count));
}

}  // namespace quire::cuda
