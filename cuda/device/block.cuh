#pragma once
// Collectives of a block: CUB under nvcc, in the emulation stand-ins of the same names and
// signatures.

#include "cuda/device/kernel.cuh"

#ifdef __CUDACC__
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/warp/warp_reduce.cuh>
#else
#include <cuda_emulation/cub.h>
#endif
