// Products of at most eight rows with a weight matrix of bf16, f16 or fp8: bound by reading the
// weights, which go from memory to registers once, past the caches, and are operands of tensor
// cores there: the weight's rows are those of the product, x's its columns. The warps of a block
// share sixteen rows of the weight and take steps of their columns in turn, with some on the way.
// The first ones are fetched before the kernel that computes x has ended. Fp8 becomes the dtype of
// x, which stays as it is.
//
// Half of the weight's rows may be gates of the others, so that a block has eight of each; the
// product may be added to what is there; and x may be the norm of other rows, which then every
// block takes for itself.

#include "cuda/device/activation.cuh"
#include "cuda/device/any_view.cuh"
#include "cuda/device/dependent.cuh"
#include "cuda/device/fp8.cuh"
#include "cuda/kernels/block_norm.h"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/capability.h"

namespace quire::cuda {
namespace {

constexpr int kRows = 16, kMostTokens = kFusedRows;  // of an instruction
constexpr int kChunks = 2;  // of 16 bytes that a lane has of a row and step

// Columns of a step; of fp8 those under one scale.
template <class W>
constexpr int kStep = 4 * kVecWidth<W>* kChunks;
static_assert(kStep<__nv_fp8_e4m3> == kFp8Block);
// Warps of a block, steps of each on the way, and warps on a multiprocessor, as registers allow: 64
// or 128 KiB on the way. Fp8 takes more instructions, so that more warps have to share them; so do
// more of any weight's whose blocks are less than one a multiprocessor.
constexpr int kMostWarps = 8, kResidentWarps = 16;
template <class W>
constexpr int kWarps = sizeof(W) == 1 ? kMostWarps : 4;
template <class W>
constexpr int kDepth = sizeof(W) == 1 ? 2 : 4;
// Sums of a block, of every eighth step each: those of one warp or two, so that a product has the
// same bits whichever number of warps makes it.
constexpr int kSums = kMostWarps;
template <class T, class W>
struct SmallLinearArgs {
  AnyView out, bias;  // [1, tokens, N], [1, 1, N]
  const T* x;         // unless there is a norm
  BlockNorm<T> norm;
  const W* weight;
  const float* scales;  // of fp8: one for each row, or for each block
  std::int64_t x_stride, weight_stride, scale_stride;
  int tokens, rows, columns;  // of the weight: N, K
  int gated;                  // rows of gates, behind which as many follow that they gate
  Activation activation;
  bool in_blocks, adds;
};

// Sixteen bytes as they lie in memory.
struct Chunk {
  std::uint32_t word[4];
};
__device__ __forceinline__ Chunk chunk_of(const uint4& bits) {
  return {{bits.x, bits.y, bits.z, bits.w}};
}

// What a lane has of a step: of rows lane / 4 and lane / 4 + 8 of the weight, and of row lane / 4
// of x, the same columns.
struct WeightSlice {
  Chunk low[kChunks], high[kChunks];
};
template <class T, class W>
struct InputSlice {
  Chunk x[kChunks][sizeof(T) / sizeof(W)];
  float low_scale, high_scale;  // of the blocks
};

// Words of x with the columns of word i of a weight's chunk.
template <class T, class W>
__device__ __forceinline__ void multiply(FragmentC& sum, const WeightSlice& w,
                                         const InputSlice<T, W>& input) {
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const auto& x = input.x[c];
    const Chunk &low = w.low[c], &high = w.high[c];
    if constexpr (std::is_same_v<T, W>) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        mma<T>(sum, {{low.word[i], high.word[i], low.word[i + 1], high.word[i + 1]}},
               {{x[0].word[i], x[0].word[i + 1]}});
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const FragmentB l = wide_pairs<T>(low.word[i]), h = wide_pairs<T>(high.word[i]);
        const Chunk& of = x[i / 2];
        mma<T>(sum, {{l.r[0], h.r[0], l.r[1], h.r[1]}},
               {{of.word[i % 2 * 2], of.word[i % 2 * 2 + 1]}});
      }
    }
  }
}

// kGated: of a block's rows the first half are gates, the others what they gate. kNormed: x is the
// norm of other rows.
template <class T, class W, bool kGated, bool kNormed, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, kResidentWarps / kWarps)
    small_linear_kernel(const __grid_constant__ SmallLinearArgs<T, W> a) {
  constexpr bool kPlain = std::is_same_v<T, W>;
  constexpr int kWidth = kVecWidth<W>, kOutputs = kGated ? kRows / 2 : kRows;
  constexpr int kThreads = kWarps * 32, kSumsOfWarp = kSums / kWarps;
  static_assert(kDepth<W> % kSumsOfWarp == 0);
  SHARED(sums, float[kSums][kMostTokens][kRows]);
  DYN_SHARED(normed, T);  // [tokens, normed_pitch(columns)]
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row0 = static_cast<int>(blockIdx.x) * kOutputs, steps = (a.columns - 1) / kStep<W> + 1;
  const auto column_of = [&](int step, int chunk) {
    return step * kStep<W> + (chunk * 4 + lane % 4) * kWidth;
  };
  // Rows past the end are not stored.
  const int last = (kGated ? a.gated : a.rows) - 1, to_high = kGated ? a.gated : kRows / 2;
  const int low_row = min(row0 + lane / 4, last);
  const int high_row = kGated ? low_row + to_high : min(row0 + lane / 4 + to_high, last);
  const W* const low = a.weight + low_row * a.weight_stride;
  const W* const high = a.weight + high_row * a.weight_stride;
  const auto fetch = [&](WeightSlice& to, int step) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int column = column_of(step, c);
      if (column >= a.columns) continue;  // x has zeros there
      to.low[c] = chunk_of(__ldcs(reinterpret_cast<const uint4*>(low + column)));
      to.high[c] = chunk_of(__ldcs(reinterpret_cast<const uint4*>(high + column)));
    }
  };
  WeightSlice ahead[kDepth<W>] = {};
#pragma unroll
  for (int s = 0; s < kDepth<W>; ++s) fetch(ahead[s], warp + s * kWarps);
  if constexpr (kNormed) fetch_norm_weight<kThreads>(normed, a.norm, a.tokens, a.columns);
  release_next_kernel();
  await_previous_kernel();
  if constexpr (kNormed) norm_rows<kThreads, kMostTokens>(normed, a.norm, a.tokens, a.columns);

  const int token = static_cast<int>(threadIdx.x) / kOutputs,
            r = static_cast<int>(threadIdx.x) % kOutputs;
  const int row = row0 + r;
  const bool stores = token < a.tokens && row <= last;
  const float before = a.adds && stores ? a.out.load(0, token, row) : 0.f;

  const int x_row = min(lane / 4, a.tokens - 1);
  const T* const x = kNormed ? normed + x_row * normed_pitch(a.columns) : a.x + x_row * a.x_stride;
  const auto scales_of = [&](int weight_row) {
    return a.scales + (a.in_blocks ? weight_row / kFp8Block * a.scale_stride : 0);
  };
  const float *const low_scales = scales_of(row0), *const high_scales = scales_of(row0 + to_high);
  const auto load_input = [&](int step) {
    InputSlice<T, W> input{};
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int column = column_of(step, c);
      if (lane / 4 >= a.tokens || column >= a.columns) continue;
#pragma unroll
      for (int i = 0; i < kWidth / kVecWidth<T>; ++i)
        input.x[c][i] = chunk_of(*reinterpret_cast<const uint4*>(x + column + i * kVecWidth<T>));
    }
    const bool has_scales = !kPlain && a.in_blocks && step < steps;
    input.low_scale = has_scales ? low_scales[step] : 1.f;
    input.high_scale = kGated && has_scales ? high_scales[step] : input.low_scale;
    return input;
  };

  FragmentC part_sums[kSumsOfWarp] = {};
  InputSlice<T, W> next = load_input(warp);
  for (int first = warp; first < steps; first += kDepth<W> * kWarps) {
#pragma unroll
    for (int s = 0; s < kDepth<W>; ++s) {
      const int step = first + s * kWarps;
      if (step >= steps) break;
      FragmentC& sum = part_sums[s % kSumsOfWarp];
      const InputSlice<T, W> input = next;
      next = load_input(step + kWarps);
      if constexpr (kPlain) {
        multiply(sum, ahead[s], input);
      } else {
        FragmentC part{};
        multiply(part, ahead[s], input);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sum.r[i] = fmaf(part.r[i], i < 2 ? input.low_scale : input.high_scale, sum.r[i]);
      }
      fetch(ahead[s], step + kDepth<W> * kWarps);
    }
  }
#pragma unroll
  for (int p = 0; p < kSumsOfWarp; ++p) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sums[warp + p * kWarps][lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] = part_sums[p].r[i];
  }
  __syncthreads();
  if (!stores) return;
  const auto total = [&](int place, int weight_row) {
    float all = 0.f;
#pragma unroll
    for (int p = 0; p < kSums; ++p) all += sums[p][token][place];
    return !kPlain && !a.in_blocks ? all * a.scales[weight_row] : all;
  };
  if constexpr (kGated) {  // rounded as products of their own are
    const float gate = static_cast<float>(T(total(r, row)));
    const float up = static_cast<float>(T(total(r + kOutputs, row + a.gated)));
    a.out.store(0, token, row, activate_gated(a.activation, gate, up));
  } else {
    const float product = total(r, row) + (a.bias.data != nullptr ? a.bias.load(0, 0, row) : 0.f);
    a.out.store(0, token, row, before + product);
  }
}

template <class T, class W>
SmallLinearArgs<T, W> args_of(const FusedLinearArgs& c) {
  const Weight& weight = c.weight;
  const bool normed = !c.norm_weight.empty();
  const int rows = static_cast<int>(weight.data.extent(0));
  return {.out = AnyView(c.out),
          .bias = AnyView(c.bias),
          .x = normed ? nullptr : static_cast<const T*>(c.x.data()),
          .norm = block_norm<T>(c),
          .weight = static_cast<const W*>(weight.data.data()),
          .scales = static_cast<const float*>(weight.scales.data()),
          .x_stride = c.x.stride(0),
          .weight_stride = weight.data.stride(0),
          .scale_stride = weight.scales.empty() ? 0 : weight.scales.stride(0),
          .tokens = static_cast<int>(c.x.extent(0)),
          .rows = rows,
          .columns = static_cast<int>(weight.data.extent(1)),
          .gated = rows / 2,
          .activation = c.activation.value_or(Activation::silu),
          .in_blocks = weight.format == WeightFormat::fp8_blocks,
          .adds = c.adds};
}

template <class T, class W>
void launch_small(const FusedLinearArgs& c, StreamRef stream) {
  const int outputs_of_block = c.activation ? kRows / 2 : kRows;
  const auto blocks = static_cast<int>((c.out.extent(1) + outputs_of_block - 1) / outputs_of_block);
  const auto launch_kernel = [&](auto kernel, int warps, std::size_t shared) {
    CUDA_CHECK(launch(kernel, dim3(static_cast<unsigned>(blocks)),
                      dim3(static_cast<unsigned>(warps * 32)), shared, native(stream),
                      args_of<T, W>(c)));
  };
  const bool normed = !c.norm_weight.empty();
  const std::size_t shared = normed ? normed_bytes<T>(c) : 0;
  constexpr int kFew = kWarps<W>;
  if (c.activation && normed)
    return launch_kernel(small_linear_kernel<T, W, true, true, kFew>, kFew, shared);
  if (c.activation)
    return launch_kernel(small_linear_kernel<T, W, true, false, kFew>, kFew, shared);
  if (normed) return launch_kernel(small_linear_kernel<T, W, false, true, kFew>, kFew, shared);
  if (blocks <= processor_count())
    return launch_kernel(small_linear_kernel<T, W, false, false, kMostWarps>, kMostWarps, shared);
  launch_kernel(small_linear_kernel<T, W, false, false, kFew>, kFew, shared);
}

}  // namespace

bool small_linear_supports(const FusedLinearArgs& c) {
  const Weight& weight = c.weight;
  const bool fp8 = is_fp8(weight.format);
  const DType dtype = multiplied_dtype(c);
  const std::int64_t width = fp8 ? kVecWidth<__nv_fp8_e4m3> : kVecWidth<__half>;
  if (c.activation &&
      (c.adds || !c.bias.empty() ||
       (weight.format == WeightFormat::fp8_blocks && weight.data.extent(0) / 2 % (kRows / 2) != 0)))
    return false;
  return c.x.extent(0) >= 1 && c.x.extent(0) <= kMostTokens &&
         (dtype == DType::bf16 || dtype == DType::f16) &&
         (fp8 || (weight.format == WeightFormat::plain && weight.data.dtype() == dtype)) &&
         weight.data.rank() == 2 && weight.data.extent(1) > 0 &&
         weight.data.extent(1) % width == 0 && is_aligned(weight.data) &&
         (c.norm_weight.empty() ? is_aligned(c.x) : block_can_norm(c));
}

void small_linear(const FusedLinearArgs& c, StreamRef stream) {
  if (c.out.numel() == 0) return;
  const auto launch_on = [&]<class T>(Type<T>) {
    if (is_fp8(c.weight.format)) return launch_small<T, __nv_fp8_e4m3>(c, stream);
    launch_small<T, T>(c, stream);
  };
  if (multiplied_dtype(c) == DType::bf16) return launch_on(Type<__nv_bfloat16>{});
  launch_on(Type<__half>{});
}

}  // namespace quire::cuda
