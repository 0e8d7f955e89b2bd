#include "cuda/runtime/cublaslt.h"

#include "cuda/gemm.h"

namespace quire::cuda {

const SharedLibrary& cublaslt() {
  static const SharedLibrary library({"libcublasLt.so.13", "libcublasLt.so.12"},
                                     {"/usr/local/cuda/lib64"});
  return library;
}

std::string gemm_unavailable() {
  if (cublaslt().missing().empty()) return "";
  return "cuBLASLt is not installed (package libcublas of the CUDA toolkit, 12.4 or later): " +
         cublaslt().missing();
}

}  // namespace quire::cuda
