// The factories of a program that was built without CUDA.

#include "base/error.h"
#include "cuda/cuda_backend.h"

namespace quire {

std::string cuda_unavailable() { return "this binary was built without CUDA"; }

std::string cuda_lacks() { return ""; }

std::unique_ptr<Device> make_cuda_device(const CudaOptions&) {
  throw Failure(ErrorCode::unsupported, cuda_unavailable());
}

std::unique_ptr<Ops> make_cuda_ops(Device&, const CudaOpsOptions&) {
  throw Failure(ErrorCode::unsupported, cuda_unavailable());
}

int num_cuda_devices() { return 0; }
std::string cuda_ranks_unavailable() { return cuda_unavailable(); }
std::string cuda_ranks_library() { return ""; }

CudaRanksId make_cuda_ranks_id() { throw Failure(ErrorCode::unsupported, cuda_unavailable()); }

std::unique_ptr<Collectives> make_cuda_collectives(Device&, const CudaRank&,
                                                   std::function<void()>) {
  throw Failure(ErrorCode::unsupported, cuda_unavailable());
}

}  // namespace quire
