// How many drafts of each request held, and what depends on it (backend/draft_ops.h). A few hundred
// numbers: bound by latency, so it is one launch, and each number's thread counts for itself.

#include "backend/no_token.h"
#include "cuda/device/vec.cuh"
#include "cuda/kernels/draws.h"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 128;

struct Held {
  const std::int32_t *draws, *tokens, *num_drafts, *first_draft, *first_draw, *first_next;
  std::int32_t* numbers;
  const std::int32_t *at, *line;
  std::int32_t* lost;
  int num_lines, num_cells;

  __device__ int count_lost(int line) const {
    if (first_draw[line] < 0) return 0;
    const std::int32_t* drafted = tokens + first_draft[line];
    const std::int32_t* drawn = draws + first_draw[line];
    const int count = num_drafts[line];
    int held = 0;
    while (held < count && drafted[held] != kNoToken && drafted[held] == drawn[held]) ++held;
    return count - held;
  }
};

// Threads of cells, then those of lines: they write other numbers.
__global__ void __launch_bounds__(kThreads) settle_kernel(const __grid_constant__ Held p) {
  release_next_kernel();
  await_previous_kernel();
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i < p.num_cells) {
    if (p.line[i] >= 0) p.numbers[p.at[i]] -= p.count_lost(p.line[i]);
    return;
  }
  const int line = i - p.num_cells;
  if (line >= p.num_lines) return;
  if (p.lost != nullptr) p.lost[line] = p.count_lost(line);
  if (p.first_next == nullptr || p.first_draw[line] < 0) return;
  for (int draw = 0; draw <= p.num_drafts[line]; ++draw)
    p.numbers[p.first_next[line] + draw] = p.draws[p.first_draw[line] + draw];
}

struct Lag {
  std::int32_t* numbers;
  const std::int32_t *at, *line, *lost;
  int num_cells;
};

__global__ void __launch_bounds__(kThreads) lag_kernel(const __grid_constant__ Lag p) {
  release_next_kernel();
  await_previous_kernel();
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i < p.num_cells && p.line[i] >= 0) p.numbers[p.at[i]] -= p.lost[p.line[i]];
}

const std::int32_t* ints(const TensorView& values) {
  return static_cast<const std::int32_t*>(values.empty() ? nullptr : values.data());
}

dim3 blocks_of(int threads) {
  return dim3(static_cast<unsigned>((threads + kThreads - 1) / kThreads));
}

}  // namespace

void settle_drafts(const HeldArgs& args, StreamRef stream) {
  const Held p{.draws = ints(args.draws),
               .tokens = ints(args.tokens),
               .num_drafts = ints(args.num_drafts),
               .first_draft = ints(args.first_draft),
               .first_draw = ints(args.first_draw),
               .first_next = ints(args.first_next),
               .numbers = static_cast<std::int32_t*>(args.numbers.data()),
               .at = ints(args.at),
               .line = ints(args.line),
               .lost = const_cast<std::int32_t*>(ints(args.lost)),
               .num_lines = static_cast<int>(args.num_drafts.extent(0)),
               .num_cells = static_cast<int>(args.at.extent(0))};
  const int threads = p.num_lines + p.num_cells;
  if (threads == 0) return;
  CUDA_CHECK(launch(settle_kernel, blocks_of(threads), dim3(kThreads), 0, native(stream), p));
}

void lag_numbers(TensorView numbers, TensorView at, TensorView line, TensorView lost,
                 StreamRef stream) {
  const Lag p{.numbers = static_cast<std::int32_t*>(numbers.data()),
              .at = ints(at),
              .line = ints(line),
              .lost = ints(lost),
              .num_cells = static_cast<int>(at.extent(0))};
  if (p.num_cells == 0) return;
  CUDA_CHECK(launch(lag_kernel, blocks_of(p.num_cells), dim3(kThreads), 0, native(stream), p));
}

}  // namespace quire::cuda
