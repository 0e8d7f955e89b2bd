// Operators on elements of tensors of any strides and widths: what some architectures need besides
// the vectorized ones in elementwise.cu, and the way out for those when a row is not made of whole
// 16-byte vectors.

#include "cuda/device/activation.cuh"
#include "cuda/device/vec.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;

// [outer, inner, width] of a tensor of rank 1 to 3.
template <class T>
View<T, 3> rows_view(const TensorView& tensor) {
  View<T, 3> view;
  view.data = static_cast<T*>(tensor.data());
  const int rank = tensor.rank();
  for (int i = 0; i < 3; ++i) {
    const int from = i - 3 + rank;
    view.extent[i] = from >= 0 ? tensor.extent(from) : 1;
    view.stride[i] = from >= 0 ? tensor.stride(from) : 0;
  }
  return view;
}

// One block per row and kThreads elements; apply(outer, inner, i).
template <class Apply>
__global__ void __launch_bounds__(kThreads)
    strided_kernel(std::int64_t inner, std::int64_t width, const Apply apply) {
  release_next_kernel();
  await_previous_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (i < width) apply(blockIdx.x / inner, blockIdx.x % inner, i);
}

template <class T, class Apply>
void for_elements(const View<T, 3>& shape, StreamRef stream, const Apply& apply) {
  const std::int64_t rows = shape.extent[0] * shape.extent[1], width = shape.extent[2];
  if (rows * width == 0) return;
  const dim3 grid(static_cast<unsigned>(rows),
                  static_cast<unsigned>((width + kThreads - 1) / kThreads));
  CUDA_CHECK(launch(strided_kernel<Apply>, grid, dim3(kThreads), 0, native(stream), shape.extent[1],
                    width, apply));
}

template <class Out, class A, class B, class Combine>
struct Binary {
  View<Out, 3> out;
  View<const A, 3> a;
  View<const B, 3> b;
  Combine combine;
  __device__ void operator()(std::int64_t r, std::int64_t h, std::int64_t i) const {
    out(r, h, i) = Out(combine(static_cast<float>(a(r, h, i)), static_cast<float>(b(r, h, i))));
  }
};
template <class Out, class X, class Map>
struct Unary {
  View<Out, 3> out;
  View<const X, 3> x;
  Map map;
  __device__ void operator()(std::int64_t r, std::int64_t h, std::int64_t i) const {
    out(r, h, i) = Out(map(static_cast<float>(x(r, h, i))));
  }
};

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct TimesSigmoid {
  __device__ float operator()(float x, float gate) const { return x / (1.f + __expf(-gate)); }
};
struct Identity {
  __device__ float operator()(float x) const { return x; }
};
struct Times {
  float factor;
  __device__ float operator()(float x) const { return x * factor; }
};
struct SoftCap {
  float cap;
  __device__ float operator()(float x) const { return cap * tanhf(x / cap); }
};
struct Activated {
  Activation activation;
  __device__ float operator()(float x) const { return activate(activation, x); }
};
struct Gated {
  Activation activation;
  __device__ float operator()(float gate, float up) const {
    return activate_gated(activation, gate, up);
  }
};

template <class Map>
void map_elements(TensorView out, TensorView x, StreamRef stream, const Map& map) {
  dispatch_device_float(out.dtype(), [&]<class Out>(Type<Out>) {
    dispatch_device_float(x.dtype(), [&]<class X>(Type<X>) {
      const auto to = rows_view<Out>(out);
      for_elements(to, stream, Unary<Out, X, Map>{to, rows_view<const X>(x), map});
    });
  });
}

template <class Combine>
void combine_elements(TensorView out, TensorView a, TensorView b, StreamRef stream,
                      const Combine& combine) {
  dispatch_device_float(out.dtype(), [&]<class Out>(Type<Out>) {
    dispatch_device_float(b.dtype(), [&]<class B>(Type<B>) {
      assert(a.dtype() == out.dtype());
      const auto to = rows_view<Out>(out);
      auto second = rows_view<const B>(b);
      if (second.extent[2] == 1) second.stride[2] = 0;  // one value for the row
      for_elements(to, stream,
                   Binary<Out, Out, B, Combine>{to, rows_view<const Out>(a), second, combine});
    });
  });
}

}  // namespace

void copy(TensorView out, TensorView x, StreamRef stream) {
  map_elements(out, x, stream, Identity{});
}
void soft_cap(TensorView x, float cap, StreamRef stream) {
  map_elements(x, x, stream, SoftCap{cap});
}
void activation(TensorView out, TensorView x, Activation kind, StreamRef stream) {
  map_elements(out, x, stream, Activated{kind});
}
void scale_strided(TensorView x, float factor, StreamRef stream) {
  map_elements(x, x, stream, Times{factor});
}
void sigmoid_gate(TensorView x, TensorView gate, StreamRef stream) {
  combine_elements(x, x, gate, stream, TimesSigmoid{});
}
void add_strided(TensorView out, TensorView a, TensorView b, StreamRef stream) {
  combine_elements(out, a, b, stream, Sum{});
}
void gated_activation_strided(TensorView out, TensorView gate_up, Activation kind,
                              StreamRef stream) {
  const std::int64_t width = out.extent(1);
  const TensorView gate = gate_up.narrow(1, 0, width), up = gate_up.narrow(1, width, 2 * width);
  dispatch_device_float(out.dtype(), [&]<class Out>(Type<Out>) {
    dispatch_device_float(gate_up.dtype(), [&]<class X>(Type<X>) {
      const auto to = rows_view<Out>(out);
      for_elements(to, stream,
                   Binary<Out, X, X, Gated>{to, rows_view<const X>(gate), rows_view<const X>(up),
                                            Gated{kind}});
    });
  });
}

}  // namespace quire::cuda
