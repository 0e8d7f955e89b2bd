// Matrix products for the emulation: float32 sums in the order of the columns, queued like a
// launch.

#include "cuda/gemm.h"

#include "cuda/device/vec.cuh"
#include "kernel.h"

namespace quire::cuda {
namespace {

template <class Out, class X>
void multiply(View<Out, 2> out, View<const X, 2> x, View<const X, 2> weight,
              View<const Out, 1> bias) {
  for (std::int64_t i = 0; i < out.extent[0]; ++i) {
    for (std::int64_t j = 0; j < out.extent[1]; ++j) {
      float sum = bias.data != nullptr ? static_cast<float>(bias(j)) : 0.f;
      for (std::int64_t k = 0; k < x.extent[1]; ++k) {
        sum += static_cast<float>(x(i, k)) * static_cast<float>(weight(j, k));
      }
      out(i, j) = Out(sum);
    }
  }
}

// Scales of x are [blocks of K, T], those of a weight [blocks of N, blocks of K]; one for a row is
// one block of all of K.
struct Scaling {
  View<const float, 2> x, weight;
  std::int64_t rows, depth;  // under one of the weight's scales
};

template <class Out, class Bias>
void multiply_scaled(View<Out, 2> out, View<const __nv_fp8_e4m3, 2> x,
                     View<const __nv_fp8_e4m3, 2> weight, View<const Bias, 1> bias,
                     const Scaling& scales) {
  for (std::int64_t i = 0; i < out.extent[0]; ++i) {
    for (std::int64_t j = 0; j < out.extent[1]; ++j) {
      float sum = bias.data != nullptr ? static_cast<float>(bias(j)) : 0.f;
      for (std::int64_t begin = 0, b = 0; begin < x.extent[1]; begin += scales.depth, ++b) {
        const std::int64_t end = std::min(begin + scales.depth, x.extent[1]);
        float part = 0.f;
        for (std::int64_t k = begin; k < end; ++k) {
          part += static_cast<float>(x(i, k)) * static_cast<float>(weight(j, k));
        }
        sum += part * scales.x(b, i) * scales.weight(j / scales.rows, b);
      }
      out(i, j) = Out(sum);
    }
  }
}

Scaling scaling_of(const Fp8Product& p) {
  if (p.weight.format == WeightFormat::fp8_blocks) {
    return {device_view<const float, 2>(p.x_scales), device_view<const float, 2>(p.weight.scales),
            kFp8Block, kFp8Block};
  }
  return {device_view<const float, 2>(p.x_scales.reshape({1, p.x.extent(0)})),
          device_view<const float, 2>(p.weight.scales.reshape({p.weight.data.extent(0), 1})), 1,
          p.x.extent(1)};
}

class EmulatedGemm final : public Gemm {
 public:
  bool has_fp8() const override { return true; }

 private:
  void multiply(TensorView out, TensorView x, TensorView weight, TensorView bias,
                StreamRef stream) override {
    const auto queue = static_cast<cudaStream_t>(stream.handle());
    dispatch_device_float(out.dtype(), [&]<class Out>(Type<Out>) {
      dispatch_device_float(x.dtype(), [&]<class X>(Type<X>) {
        emulation::enqueue(queue, [out = device_view<Out, 2>(out), x = device_view<const X, 2>(x),
                                   weight = device_view<const X, 2>(weight),
                                   bias = device_view<const Out, 1>(bias)] {
          cuda::multiply(out, x, weight, bias);
        });
      });
    });
  }
  void multiply_heads(TensorView out, TensorView x, TensorView weight, StreamRef stream) override {
    const auto of_head = [](TensorView tensor, int dim, std::int64_t head) {
      const int rows = 1 - dim;
      return TensorView(tensor.narrow(dim, head, head + 1).data(), tensor.dtype(),
                        {tensor.extent(rows), tensor.extent(2)})
          .with_strides({tensor.stride(rows), tensor.stride(2)});
    };
    for (std::int64_t h = 0; h < weight.extent(0); ++h)
      multiply(of_head(out, 1, h), of_head(x, 1, h), of_head(weight, 0, h), {}, stream);
  }
  void multiply_fp8(const Fp8Product& p, StreamRef stream) override {
    const auto queue = static_cast<cudaStream_t>(stream.handle());
    const auto enqueue = [&]<class Out, class Bias>(Type<Out>, Type<Bias>) {
      emulation::enqueue(
          queue, [out = device_view<Out, 2>(p.out), x = device_view<const __nv_fp8_e4m3, 2>(p.x),
                  weight = device_view<const __nv_fp8_e4m3, 2>(p.weight.data),
                  bias = device_view<const Bias, 1>(p.bias),
                  scales = scaling_of(p)] { multiply_scaled(out, x, weight, bias, scales); });
    };
    if (p.out.dtype() == DType::f16) return enqueue(Type<__half>{}, Type<__half>{});
    if (p.out.dtype() == DType::bf16) {
      return enqueue(Type<__nv_bfloat16>{}, Type<__nv_bfloat16>{});
    }
    enqueue(Type<float>{}, Type<__nv_bfloat16>{});
  }
};

}  // namespace

std::string gemm_unavailable() { return ""; }
std::unique_ptr<Gemm> make_gemm(void*) { return std::make_unique<EmulatedGemm>(); }

}  // namespace quire::cuda
