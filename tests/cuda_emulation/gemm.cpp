// Matrix products for the emulation: float32 sums in the order of the columns, queued like a
// launch.

#include "cuda/gemm.h"

#include "cuda/device/vec.cuh"
#include "kernel.h"

namespace quire::cuda {
namespace {

template <class Out, class X, class W>
void multiply(View<Out, 2> out, View<const X, 2> x, View<const W, 2> weight,
              View<const W, 1> bias) {
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

class EmulatedGemm final : public Gemm {
 public:
  void linear(TensorView out, TensorView x, TensorView weight, TensorView bias,
              StreamRef stream) override {
    const auto queue = static_cast<cudaStream_t>(stream.handle());
    dispatch_device_float(out.dtype(), [&]<class Out>(Type<Out>) {
      dispatch_device_float(x.dtype(), [&]<class X>(Type<X>) {
        dispatch_device_float(weight.dtype(), [&]<class W>(Type<W>) {
          emulation::enqueue(
              queue, [out = device_view<Out, 2>(out), x = device_view<const X, 2>(x),
                      weight = device_view<const W, 2>(weight),
                      bias = device_view<const W, 1>(bias)] { multiply(out, x, weight, bias); });
        });
      });
    });
  }
  void head_linear(TensorView out, TensorView x, TensorView weight, StreamRef stream) override {
    const auto of_head = [](TensorView tensor, int dim, std::int64_t head) {
      const int rows = 1 - dim;
      return TensorView(tensor.narrow(dim, head, head + 1).data(), tensor.dtype(),
                        {tensor.extent(rows), tensor.extent(2)})
          .with_strides({tensor.stride(rows), tensor.stride(2)});
    };
    for (std::int64_t h = 0; h < weight.extent(0); ++h)
      linear(of_head(out, 1, h), of_head(x, 1, h), of_head(weight, 0, h), {}, stream);
  }
};

}  // namespace

std::string gemm_unavailable() { return ""; }
std::unique_ptr<Gemm> make_gemm(void*) { return std::make_unique<EmulatedGemm>(); }

}  // namespace quire::cuda
