// Queries, keys and values between their products and attention: norm by head, rotation and cache
// writes in one launch in place of five. Memory bound: all of it is read once and written once.

#include <bit>

#include "cuda/device/fast_divide.cuh"
#include "cuda/device/wide.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 128;

template <class T, class Cache>
struct HeadKernelArgs {
  T* q;
  const T *k, *v;
  std::int64_t q_stride[2], k_stride[2], v_stride[2];  // token, head
  Cache *k_cache, *v_cache;
  std::int64_t k_cache_stride[3], v_cache_stride[3];  // block, slot, head
  const T *q_norm, *k_norm;                           // null: no norm
  const std::int32_t* positions;
  const float* cos_sin;  // null: no rotation
  std::int64_t cos_sin_stride;
  const std::int64_t* slots;
  CacheScale scale;
  FastDivide slots_of_block;
  float width, eps, offset;
  int queries, heads;  // of a token; heads with the keys'
  int lanes_log2;      // threads of a head, of which `pairs` have two runs of kWideWidth each
  int pairs, rotated;  // of these, those whose runs rotate
  bool interleaved;
};

template <class Cache>
__device__ __forceinline__ void store_cached(Cache* to, const Wide<float>& values, float scale) {
  Vec<Cache, kWideWidth> run;
#pragma unroll
  for (int k = 0; k < kWideWidth; ++k) {
    float value = values.at[k];
    if constexpr (std::is_same_v<Cache, __nv_fp8_e4m3>) value /= scale;
    run.at[k] = Cache(value);
  }
  *reinterpret_cast<Vec<Cache, kWideWidth>*>(to) = run;
}

template <class T>
__device__ __forceinline__ void norm_run(Wide<float>& run, const T* weight, float scale,
                                         float offset) {
  const Wide<float> w = load_wide_floats(weight);
#pragma unroll
  for (int k = 0; k < kWideWidth; ++k)
    run.at[k] = static_cast<float>(T(run.at[k] * scale * (w.at[k] + offset)));
}

template <class T>
__device__ __forceinline__ void turn(float& a, float& b, float cosine, float sine) {
  const float p = a, q = b;
  a = static_cast<float>(T(p * cosine - q * sine));
  b = static_cast<float>(T(q * cosine + p * sine));
}

// a and b: the same dims of both halves, or neighbours where pairs are.
template <class T>
__device__ __forceinline__ void rotate(Wide<float>& a, Wide<float>& b, const float* row, int lane,
                                       int half, bool interleaved) {
  const float* const cosines = row + lane * kWideWidth;
  const auto cosine = *reinterpret_cast<const Vec<float, kWideWidth>*>(cosines);
  const auto sine = *reinterpret_cast<const Vec<float, kWideWidth>*>(cosines + half);
#pragma unroll
  for (int k = 0; k < kWideWidth; ++k) {
    if (interleaved) {
      Wide<float>& pairs = k < kWideWidth / 2 ? a : b;
      const int at = 2 * (k % (kWideWidth / 2));
      turn<T>(pairs.at[at], pairs.at[at + 1], cosine.at[k], sine.at[k]);
    } else {
      turn<T>(a.at[k], b.at[k], cosine.at[k], sine.at[k]);
    }
  }
}

template <class T>
__device__ __forceinline__ void store_rounded(T* to, const Wide<float>& values) {
  Wide<T> rounded;
#pragma unroll
  for (int k = 0; k < kWideWidth; ++k) rounded.at[k] = T(values.at[k]);
  store_wide(to, rounded);
}

// Blocks go over (token, heads of it); a key's threads have its value too.
template <class T, class Cache>
__global__ void __launch_bounds__(kThreads)
    prepare_heads_kernel(const __grid_constant__ HeadKernelArgs<T, Cache> a) {
  release_next_kernel();
  if (a.q_norm != nullptr) {
    prefetch(a.q_norm, static_cast<int>(a.width));
    prefetch(a.k_norm, static_cast<int>(a.width));
  }
  await_previous_kernel();
  const std::int64_t token = blockIdx.x;
  const int thread = blockIdx.y * kThreads + threadIdx.x;
  const int lane = thread & ((1 << a.lanes_log2) - 1);
  const int head = thread >> a.lanes_log2, key = head - a.queries;
  const bool there = head < a.heads && lane < a.pairs;
  const bool rotates = lane < a.rotated;
  const int first = (rotates && !a.interleaved ? lane : 2 * lane) * kWideWidth;
  const int second = first + (rotates && !a.interleaved ? a.rotated : 1) * kWideWidth;
  const T* const from = key < 0 ? a.q + token * a.q_stride[0] + head * a.q_stride[1]
                                : a.k + token * a.k_stride[0] + key * a.k_stride[1];
  Wide<float> x{}, y{};
  if (there) {
    x = load_wide_floats(from + first);
    y = load_wide_floats(from + second);
  }
  if (a.q_norm != nullptr) {
    float sum = 0.f;
#pragma unroll
    for (int k = 0; k < kWideWidth; ++k) sum += x.at[k] * x.at[k] + y.at[k] * y.at[k];
    for (int lanes = (1 << a.lanes_log2) / 2; lanes != 0; lanes /= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (there) {
      const float scale = rsqrtf(sum / a.width + a.eps);
      const T* const weight = key < 0 ? a.q_norm : a.k_norm;
      norm_run(x, weight + first, scale, a.offset);
      norm_run(y, weight + second, scale, a.offset);
    }
  }
  if (!there) return;
  if (rotates)
    rotate<T>(x, y, a.cos_sin + a.positions[token] * a.cos_sin_stride, lane, a.rotated * kWideWidth,
              a.interleaved);
  if (key < 0) {
    T* const to = a.q + token * a.q_stride[0] + head * a.q_stride[1];
    store_rounded(to + first, x);
    store_rounded(to + second, y);
    return;
  }
  const int slot = static_cast<int>(a.slots[token]);
  if (slot < 0) return;
  const int block = a.slots_of_block(slot), offset = slot - block * a.slots_of_block.divisor;
  const auto row_of = [&](Cache* cache, const std::int64_t* stride) {
    return cache + block * stride[0] + offset * stride[1] + key * stride[2];
  };
  Cache* const keys = row_of(a.k_cache, a.k_cache_stride);
  store_cached(keys + first, x, a.scale.k);
  store_cached(keys + second, y, a.scale.k);
  const T* const value = a.v + token * a.v_stride[0] + key * a.v_stride[1];
  Cache* const values = row_of(a.v_cache, a.v_cache_stride);
  store_cached(values + first, load_wide_floats(value + first), a.scale.v);
  store_cached(values + second, load_wide_floats(value + second), a.scale.v);
}

// Heads of whole pairs of runs at aligned addresses on both sides, at most a warp's.
bool suits(const HeadArgs& args) {
  const auto aligned = [](const TensorView& t) {
    const std::size_t run = kWideWidth * size_of(t.dtype());
    return t.empty() || (is_wide(t) && t.stride(t.rank() - 1) == 1 &&
                         reinterpret_cast<std::uintptr_t>(t.data()) % run == 0);
  };
  const std::int64_t dim = args.q.extent(2);
  const auto same = [&](const TensorView& t) { return t.empty() || t.dtype() == args.q.dtype(); };
  return dim % (2 * kWideWidth) == 0 && dim <= 64 * kWideWidth && args.k.extent(2) == dim &&
         args.v.extent(2) == dim && args.v.extent(1) == args.k.extent(1) && same(args.k) &&
         same(args.v) && same(args.q_norm) && same(args.k_norm) && aligned(args.q) &&
         aligned(args.k) && aligned(args.v) && aligned(args.q_norm) && aligned(args.k_norm) &&
         aligned(args.k_cache) && aligned(args.v_cache) && aligned(args.cos_sin) &&
         (args.cos_sin.empty() || args.cos_sin.extent(1) % (2 * kWideWidth) == 0) &&
         args.k_cache.extent(1) == args.v_cache.extent(1) &&
         args.k_cache.extent(0) * args.k_cache.extent(1) <= 0x7fffffff;  // slots of 31 bits
}

template <class T, class Cache>
void launch_heads(const HeadArgs& args, StreamRef stream) {
  const int pairs = static_cast<int>(args.q.extent(2)) / (2 * kWideWidth);
  const int rotary = args.cos_sin.empty() ? 0 : static_cast<int>(args.cos_sin.extent(1));
  const int queries = static_cast<int>(args.q.extent(1));
  const HeadKernelArgs<T, Cache> a{
      .q = static_cast<T*>(args.q.data()),
      .k = static_cast<const T*>(args.k.data()),
      .v = static_cast<const T*>(args.v.data()),
      .q_stride = {args.q.stride(0), args.q.stride(1)},
      .k_stride = {args.k.stride(0), args.k.stride(1)},
      .v_stride = {args.v.stride(0), args.v.stride(1)},
      .k_cache = static_cast<Cache*>(args.k_cache.data()),
      .v_cache = static_cast<Cache*>(args.v_cache.data()),
      .k_cache_stride = {args.k_cache.stride(0), args.k_cache.stride(1), args.k_cache.stride(2)},
      .v_cache_stride = {args.v_cache.stride(0), args.v_cache.stride(1), args.v_cache.stride(2)},
      .q_norm = static_cast<const T*>(args.q_norm.data()),
      .k_norm = static_cast<const T*>(args.k_norm.data()),
      .positions = static_cast<const std::int32_t*>(args.positions.data()),
      .cos_sin = static_cast<const float*>(args.cos_sin.data()),
      .cos_sin_stride = rotary == 0 ? 0 : args.cos_sin.stride(0),
      .slots = static_cast<const std::int64_t*>(args.slots.data()),
      .scale = args.cache_scale,
      .slots_of_block = FastDivide(static_cast<int>(args.k_cache.extent(1))),
      .width = static_cast<float>(args.q.extent(2)),
      .eps = args.norm_eps,
      .offset = args.norm_offset,
      .queries = queries,
      .heads = queries + static_cast<int>(args.k.extent(1)),
      .lanes_log2 = static_cast<int>(std::bit_width(static_cast<unsigned>(pairs) - 1)),
      .pairs = pairs,
      .rotated = rotary / (2 * kWideWidth),
      .interleaved = args.style == RopeStyle::interleaved};
  const int threads = a.heads << a.lanes_log2;
  const dim3 grid(static_cast<unsigned>(args.q.extent(0)),
                  static_cast<unsigned>((threads + kThreads - 1) / kThreads));
  CUDA_CHECK(launch(prepare_heads_kernel<T, Cache>, grid, dim3(kThreads), 0, native(stream), a));
}

// Any widths, alignment and mixture of dtypes.
void prepare_apart(const HeadArgs& args, StreamRef stream) {
  if (!args.q_norm.empty()) {
    rms_norm(args.q, args.q, args.q_norm, args.norm_eps, args.norm_offset, stream);
    rms_norm(args.k, args.k, args.k_norm, args.norm_eps, args.norm_offset, stream);
  }
  if (!args.cos_sin.empty()) {
    rope(args.q, args.positions, args.cos_sin, args.style, stream);
    rope(args.k, args.positions, args.cos_sin, args.style, stream);
  }
  kv_write(args.k_cache, args.v_cache, args.k, args.v, args.slots, args.cache_scale, stream);
}

}  // namespace

void prepare_heads(const HeadArgs& args, StreamRef stream) {
  if (args.q.extent(0) == 0) return;
  if (!suits(args)) return prepare_apart(args, stream);
  dispatch_device_float(args.q.dtype(), [&]<class T>(Type<T>) {
    dispatch_cache(args.k_cache.dtype(),
                   [&]<class Cache>(Type<Cache>) { launch_heads<T, Cache>(args, stream); });
  });
}

}  // namespace quire::cuda
