// Products with fp8 weights by fp8 tensor cores: x is rounded to e4m3 with a scale for each token,
// or for 128 elements of one beside weights in blocks, and cuBLASLt multiplies. The rounding is
// bound by reading x. Where cuBLASLt has no such product, x stays as it is.

#include "cuda/gemm.h"

#include "cuda/device/block_sum.cuh"
#include "cuda/device/wide.cuh"
#include "cuda/fp8_scratch.h"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr float kLargest = 448.f;         // of e4m3
constexpr float kSmallestScale = 1e-30f;  // of a row of zeros
constexpr int kThreads = 256;
constexpr int kGroupLanes = kFp8Block / kWideWidth;
constexpr int kBlockGroups = kThreads / kGroupLanes;

struct alignas(8) Codes {
  __nv_fp8_e4m3 at[kWideWidth];
};

template <class T>
struct QuantizeArgs {
  const T* x;
  __nv_fp8_e4m3* codes;  // [rows, depth]
  float* scales;         // [rows], or [⌈depth / 128⌉, rows]
  const float* given;    // one scale for all, optional
  std::int64_t x_stride;
  int rows, depth;
  int num_there;  // rows of x; the others are zeros
};

__device__ __forceinline__ float largest_of(const Wide<float>& values) {
  float largest = 0.f;
  for (int k = 0; k < kWideWidth; ++k) largest = fmaxf(largest, fabsf(values.at[k]));
  return largest;
}

__device__ __forceinline__ float scale_of(float largest) {
  return fmaxf(largest / kLargest, kSmallestScale);
}

__device__ __forceinline__ void store_codes(__nv_fp8_e4m3* to, const Wide<float>& values,
                                            float scale) {
  Codes codes;
  for (int k = 0; k < kWideWidth; ++k) codes.at[k] = __nv_fp8_e4m3(values.at[k] / scale);
  *reinterpret_cast<Codes*>(to) = codes;
}

// A block has a row. It is read twice, the second time from the L2 cache.
template <class T>
__global__ void __launch_bounds__(kThreads)
    quantize_rows_kernel(const __grid_constant__ QuantizeArgs<T> a) {
  release_next_kernel();
  await_previous_kernel();
  const std::int64_t row = blockIdx.x;
  const T* x = a.x + row * a.x_stride;
  const int first = threadIdx.x * kWideWidth;
  float scale = 0.f;
  if (a.given != nullptr) {
    scale = *a.given;
  } else {
    float largest = 0.f;
    for (int i = first; i < a.depth; i += kThreads * kWideWidth)
      largest = fmaxf(largest, largest_of(load_wide_floats(x + i)));
    scale = scale_of(block_reduce<kThreads>(largest, Max{}));
  }
  if (threadIdx.x == 0) a.scales[row] = scale;
  for (int i = first; i < a.depth; i += kThreads * kWideWidth)
    store_codes(a.codes + row * a.depth + i, load_wide_floats(x + i), scale);
}

// Half a warp has 128 elements of a row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    quantize_groups_kernel(const __grid_constant__ QuantizeArgs<T> a) {
  release_next_kernel();
  await_previous_kernel();
  const int row = static_cast<int>(blockIdx.x);
  const int group = static_cast<int>(blockIdx.y) * kBlockGroups + threadIdx.x / kGroupLanes;
  const int lane = threadIdx.x % kGroupLanes, i = group * kFp8Block + lane * kWideWidth;
  Wide<float> values{};
  if (i < a.depth && row < a.num_there) values = load_wide_floats(a.x + row * a.x_stride + i);
  float largest = largest_of(values);
  for (int lanes = kGroupLanes / 2; lanes != 0; lanes /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, lanes));
  const float scale = scale_of(largest);
  if (i >= a.depth) return;
  if (lane == 0) a.scales[static_cast<std::int64_t>(group) * a.rows + row] = scale;
  store_codes(a.codes + static_cast<std::int64_t>(row) * a.depth + i, values, scale);
}

}  // namespace

void quantize_groups(TensorView codes, TensorView scales, TensorView x, StreamRef stream) {
  const auto groups = static_cast<int>(scales.extent(0)), rows = static_cast<int>(codes.extent(0));
  const dim3 grid(static_cast<unsigned>(rows),
                  static_cast<unsigned>((groups + kBlockGroups - 1) / kBlockGroups));
  dispatch_device_float(x.dtype(), [&]<class T>(Type<T>) {
    const QuantizeArgs<T> args{.x = static_cast<const T*>(x.data()),
                               .codes = static_cast<__nv_fp8_e4m3*>(codes.data()),
                               .scales = static_cast<float*>(scales.data()),
                               .given = nullptr,
                               .x_stride = x.stride(0),
                               .rows = rows,
                               .depth = static_cast<int>(x.extent(1)),
                               .num_there = static_cast<int>(x.extent(0))};
    CUDA_CHECK(launch(quantize_groups_kernel<T>, grid, dim3(kThreads), 0, native(stream), args));
  });
}

namespace {

// Rows of x and where their product goes.
struct Part {
  TensorView out, x;
  std::int64_t rows;  // of the product: more than x has only where x has few
};

class Fp8Linear {
 public:
  Fp8Linear(Gemm& gemm, const Weight& weight, TensorView bias, TensorView workspace,
            std::int64_t tokens, StreamRef stream)
      : gemm_(gemm),
        weight_(weight),
        bias_(bias),
        scratch_(tokens, weight),
        memory_(static_cast<std::byte*>(workspace.data())),
        depth_(weight.data.extent(1)),
        stream_(stream) {
    if (static_cast<std::int64_t>(workspace.bytes()) < scratch_.bytes)
      throw Failure(ErrorCode::internal, "the workspace of an fp8 product is too small");
  }

  void by_rows(TensorView out, TensorView x) {
    const std::int64_t tokens = x.extent(0);
    const TensorView codes = codes_of(0, tokens);
    const TensorView scales(memory_ + scratch_.scales, DType::f32, {tokens});
    dispatch_device_float(x.dtype(), [&]<class T>(Type<T>) {
      const QuantizeArgs<T> args{.x = static_cast<const T*>(x.data()),
                                 .codes = static_cast<__nv_fp8_e4m3*>(codes.data()),
                                 .scales = static_cast<float*>(scales.data()),
                                 .given = static_cast<const float*>(weight_.input_scale.data()),
                                 .x_stride = x.stride(0),
                                 .rows = static_cast<int>(tokens),
                                 .depth = static_cast<int>(depth_),
                                 .num_there = static_cast<int>(tokens)};
      CUDA_CHECK(launch(quantize_rows_kernel<T>, dim3(static_cast<unsigned>(tokens)),
                        dim3(kThreads), 0, native(stream_), args));
    });
    if (!gemm_.fp8_linear({out, codes, scales, weight_, bias_}, stream_))
      quantized_linear(out, x, weight_, bias_, stream_);
  }

  // Scales in blocks want a multiple of four rows. What is beyond is computed again with the rows
  // before it, or, where there are none, with rows of zeros.
  void by_blocks(TensorView out, TensorView x) {
    const std::int64_t tokens = x.extent(0), whole = tokens / kPad * kPad;
    if (whole != 0) product({out.rows(0, whole), x.rows(0, whole), whole}, 0, scratch_.scales);
    if (whole == tokens) return;
    if (whole != 0) {
      const std::int64_t begin = tokens - kPad;
      return product({out.rows(begin, tokens), x.rows(begin, tokens), kPad}, begin,
                     scratch_.tail_scales);
    }
    const TensorView padded(memory_ + scratch_.tail, out.dtype(), {kPad, out.extent(1)});
    product({padded, x, kPad}, 0, scratch_.tail_scales);
    copy(out, padded.rows(0, tokens), stream_);
  }

 private:
  static constexpr std::int64_t kPad = kBlockScaleAlignment;

  TensorView codes_of(std::int64_t begin, std::int64_t rows) const {
    return {memory_ + scratch_.codes + begin * depth_, DType::fp8_e4m3, {rows, depth_}};
  }

  void product(const Part& part, std::int64_t begin, std::int64_t scales_at) {
    const std::int64_t groups = (depth_ + kFp8Block - 1) / kFp8Block;
    const TensorView codes = codes_of(begin, part.rows);
    const TensorView scales(memory_ + scales_at, DType::f32, {groups, part.rows});
    quantize_groups(codes, scales, part.x, stream_);
    if (!gemm_.fp8_linear({part.out, codes, scales, weight_, bias_}, stream_))
      quantized_linear(part.out.rows(0, part.x.extent(0)), part.x, weight_, bias_, stream_);
  }

  Gemm& gemm_;
  const Weight& weight_;
  TensorView bias_;
  Fp8Scratch scratch_;
  std::byte* memory_;
  std::int64_t depth_;
  StreamRef stream_;
};

}  // namespace

void fp8_linear(Gemm& gemm, TensorView out, TensorView x, const Weight& weight, TensorView bias,
                TensorView workspace, StreamRef stream) {
  if (out.numel() == 0) return;
  if (!is_wide(x) || !is_aligned(out)) return quantized_linear(out, x, weight, bias, stream);
  Fp8Linear linear(gemm, weight, bias, workspace, x.extent(0), stream);
  if (weight.format == WeightFormat::fp8_rows) return linear.by_rows(out, x);
  linear.by_blocks(out, x);
}

}  // namespace quire::cuda
