#include "cuda/runtime/check.h"

#include <string_view>

namespace quire::cuda {
namespace {

std::string describe(cudaError_t error, const char* call, std::string_view file, int line) {
  if (const auto slash = file.rfind('/'); slash != std::string_view::npos)
    file.remove_prefix(slash + 1);
  return std::string(file) + ":" + std::to_string(line) + ": " + call + ": " +
         cudaGetErrorName(error) + " (" + cudaGetErrorString(error) + ")";
}

}  // namespace

CudaError::CudaError(cudaError_t error, const char* call, const char* file, int line)
    : Failure(ErrorCode::internal, describe(error, call, file, line)), error_(error) {}

void check(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // what is not sticky must not show up in the next check
  throw CudaError(error, call, file, line);
}

}  // namespace quire::cuda
