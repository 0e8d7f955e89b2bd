// Of the kernels for packed integers those whose instructions are counted: compiling all formats
// takes minutes.

#include "cuda/kernels/block_norm.h"
#include "cuda/kernels/few_fragments.cuh"
#include "cuda/kernels/fragment_mma.cuh"

namespace quire::cuda {
namespace {

using Bf16 = __nv_bfloat16;
template __global__ void few_fragments_kernel<Bf16, Fragments<4, 128>, 1>(
    const __grid_constant__ FewArgs<Bf16>);
template __global__ void few_fragments_kernel<Bf16, Fragments<4, 32, true>, 1>(
    const __grid_constant__ FewArgs<Bf16>);
template __global__ void few_fragments_kernel<Bf16, Fragments<8, 32>, 1>(
    const __grid_constant__ FewArgs<Bf16>);
template __global__ void few_fragments_kernel<Bf16, Fragments<6, 32, true>, 4>(
    const __grid_constant__ FewArgs<Bf16>);
template __global__ void fragment_mma_kernel<Bf16, Fragments<4, 128>, 16>(
    const __grid_constant__ FragmentProduct<Bf16>);
template __global__ void fragment_mma_kernel<Bf16, Fragments<4, 128>, 64>(
    const __grid_constant__ FragmentProduct<Bf16>);
template __global__ void fragment_mma_kernel<Bf16, Fragments<8, 32>, 64>(
    const __grid_constant__ FragmentProduct<Bf16>);

}  // namespace
}  // namespace quire::cuda
