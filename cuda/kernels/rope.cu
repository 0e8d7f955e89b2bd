// Rotary position embedding in place. Memory bound: x is read and written once, the table's rows
// come from L2.

#include <algorithm>

#include "cuda/device/vec.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kMaxThreads = 256;

// One block per token; threads go over (head, pair).
template <class T, RopeStyle kStyle>
__global__ void __launch_bounds__(kMaxThreads)
    rope_kernel(View<T, 3> x, const std::int32_t* positions, View<const float, 2> cos_sin) {
  const std::int64_t token = blockIdx.x;
  const int heads = static_cast<int>(x.extent[1]);
  const int half = static_cast<int>(cos_sin.extent[1]) / 2;
  const float* row = cos_sin.data + positions[token] * cos_sin.stride[0];
  for (int i = threadIdx.x; i < heads * half; i += blockDim.x) {
    const int head = i / half, pair = i % half;
    const float cosine = row[pair], sine = row[half + pair];
    T& a = x(token, head, kStyle == RopeStyle::halves ? pair : 2 * pair);
    T& b = x(token, head, kStyle == RopeStyle::halves ? pair + half : 2 * pair + 1);
    const float p = static_cast<float>(a), q = static_cast<float>(b);
    a = T(p * cosine - q * sine);
    b = T(q * cosine + p * sine);
  }
}

}  // namespace

void rope(TensorView x, TensorView positions, TensorView cos_sin, RopeStyle style,
          StreamRef stream) {
  if (x.numel() == 0) return;
  const auto pairs = x.extent(1) * cos_sin.extent(1) / 2;
  const dim3 grid(static_cast<unsigned>(x.extent(0)));
  const dim3 block(
      static_cast<unsigned>(std::min<std::int64_t>((pairs + 31) / 32 * 32, kMaxThreads)));
  dispatch_device_float(x.dtype(), [&]<class T>(Type<T>) {
    const auto kernel = style == RopeStyle::halves ? rope_kernel<T, RopeStyle::halves>
                                                   : rope_kernel<T, RopeStyle::interleaved>;
    CUDA_CHECK(launch(kernel, grid, block, 0, native(stream), device_view<T, 3>(x),
                      static_cast<const std::int32_t*>(positions.data()),
                      device_view<const float, 2>(cos_sin)));
  });
}

}  // namespace quire::cuda
