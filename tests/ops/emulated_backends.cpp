// The CUDA backend with its kernels emulated on the CPU.

#include "cuda/cuda_backend.h"
#include "tests/support/op_test.h"

namespace quire::test {

std::vector<OpBackend>& op_backends() {
  static std::vector<OpBackend> backends = [] {
    std::vector<OpBackend> list;
    auto device = make_cuda_device({});
    auto ops = make_cuda_ops(*device);
    list.push_back({"cuda, emulated", std::move(device), std::move(ops)});
    return list;
  }();
  return backends;
}

}  // namespace quire::test
