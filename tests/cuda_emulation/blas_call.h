#pragma once
// What a call of the emulated cuBLASLt says, as its descriptors say it.

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t leading;
  std::int32_t batch = 1;
  std::int64_t step = 0;
};
struct cublasLtMatmulDescOpaque_t {
  cublasOperation_t a_operation = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cudaDataType_t bias_type = CUDA_R_32F;
  const void *bias = nullptr, *a_scales = nullptr, *b_scales = nullptr;
  std::int8_t fast_sums = 0;
  cublasLtMatmulMatrixScale_t a_mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
                              b_mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
};
namespace emulation {

// One matrix of each; those of a batch lie steps further on.
struct BlasCall {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, d;
  const void *a_data = nullptr, *b_data = nullptr;
  void* d_data = nullptr;
};

inline std::size_t size_of(cudaDataType_t type) {
  return type == CUDA_R_32F ? 4 : type == CUDA_R_8F_E4M3 ? 1 : 2;
}

// What cuBLASLt documents of operands.
cublasStatus_t check_form(const BlasCall& call);
// One matrix of the batch: float32 sums in the order of the columns.
void multiply(const BlasCall& call, std::int64_t index);

}  // namespace emulation
