// The factories of a program that was built without CUDA.

#include "base/error.h"
#include "cuda/cuda_backend.h"

namespace quire {

std::string cuda_unavailable() { return "this binary was built without CUDA"; }

std::unique_ptr<Device> make_cuda_device(const CudaOptions&) {
  throw Failure(ErrorCode::unsupported, cuda_unavailable());
}

std::unique_ptr<Ops> make_cuda_ops(Device&) {
  throw Failure(ErrorCode::unsupported, cuda_unavailable());
}

}  // namespace quire
