// Launches of few_fragments.cuh for every format.

#include "cuda/kernels/few_fragments.cuh"
#include "cuda/kernels/fragment_product.h"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/capability.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

template <class T, class F, int kTiles>
void launch_few(const ExpertProduct& product, StreamRef stream) {
  const TensorView &x = product.x, &out = product.out;
  const FewArgs<T> a{.out = AnyView(out),
                     .bias = AnyView(product.bias),
                     .x = static_cast<const T*>(x.data()),
                     .weight = static_cast<const unsigned char*>(product.weight.data.data()),
                     .x_stride = x.stride(0),
                     .tokens = static_cast<int>(x.extent(0)),
                     .rows = static_cast<int>(out.extent(1)),
                     .columns = static_cast<int>(x.extent(1)),
                     .base = base_and_zero<T>(product.weight.group.zero)};
  const dim3 grid(static_cast<unsigned>((a.rows + kFragmentRows - 1) / kFragmentRows));
  CUDA_CHECK(
      launch(few_fragments_kernel<T, F, kTiles>, grid, dim3(kFewThreads), 0, native(stream), a));
}

template <class T>
void few_fragments_of(const ExpertProduct& product, StreamRef stream) {
  dispatch_fragments(product.weight.group, [&]<class F>(F) {
    if (product.x.extent(0) <= 8) return launch_few<T, F, 1>(product, stream);
    launch_few<T, F, 4>(product, stream);
  });
}

}  // namespace

void few_fragments(const ExpertProduct& product, StreamRef stream) {
  if (product.x.dtype() == DType::bf16) return few_fragments_of<__nv_bfloat16>(product, stream);
  few_fragments_of<__half>(product, stream);
}

}  // namespace quire::cuda
