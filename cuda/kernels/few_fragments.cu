// Launches of few_fragments.cuh for every format.

#include "cuda/kernels/block_norm.h"
#include "cuda/kernels/few_fragments.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/capability.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

template <class T, class F, int kTiles>
void launch_few(const FusedLinearArgs& c, StreamRef stream) {
  const bool normed = !c.norm_weight.empty();
  const FewArgs<T> a{.out = AnyView(c.out),
                     .bias = AnyView(c.bias),
                     .x = normed ? nullptr : static_cast<const T*>(c.x.data()),
                     .norm = block_norm<T>(c),
                     .weight = static_cast<const unsigned char*>(c.weight.data.data()),
                     .x_stride = c.x.stride(0),
                     .tokens = static_cast<int>(c.x.extent(0)),
                     .rows = static_cast<int>(c.out.extent(1)),
                     .columns = static_cast<int>(c.x.extent(1)),
                     .base = base_and_zero<T>(c.weight.group.zero),
                     .adds = c.adds};
  const dim3 grid(static_cast<unsigned>((a.rows + kFragmentRows - 1) / kFragmentRows));
  CUDA_CHECK(launch(few_fragments_kernel<T, F, kTiles>, grid, dim3(kFewThreads), normed_bytes<T>(c),
                    native(stream), a));
}

template <class T>
void few_fragments_of(const FusedLinearArgs& c, StreamRef stream) {
  dispatch_fragments(c.weight.group, [&]<class F>(F) {
    if (c.x.extent(0) <= kFusedRows) return launch_few<T, F, 1>(c, stream);
    launch_few<T, F, 4>(c, stream);
  });
}

}  // namespace

bool few_fragments_fuses(const FusedLinearArgs& c) {
  const DType dtype = multiplied_dtype(c);
  return c.weight.format == WeightFormat::fragments && c.x.extent(0) <= kFusedRows &&
         (dtype == DType::bf16 || dtype == DType::f16) && !c.activation &&
         (c.norm_weight.empty() ? is_aligned(c.x) : block_can_norm(c));
}

void few_fragments(const FusedLinearArgs& c, StreamRef stream) {
  if (c.out.numel() == 0) return;
  if (multiplied_dtype(c) == DType::bf16) return few_fragments_of<__nv_bfloat16>(c, stream);
  few_fragments_of<__half>(c, stream);
}

}  // namespace quire::cuda
