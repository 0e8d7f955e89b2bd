#pragma once
// CUDA_CHECK(call): clears the error and throws a CudaError that names the call and its place.

#include <cuda_runtime.h>

#include <string>

#include "base/error.h"

namespace quire::cuda {

class CudaError : public Failure {
 public:
  CudaError(cudaError_t error, const char* call, const char* file, int line);
  cudaError_t error() const { return error_; }

 private:
  cudaError_t error_;
};

void check(cudaError_t error, const char* call, const char* file, int line);

}  // namespace quire::cuda

#define CUDA_CHECK(call) ::quire::cuda::check((call), #call, __FILE__, __LINE__)
