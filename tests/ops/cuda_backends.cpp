// The CUDA backend: on a device, or with its kernels emulated, as the program is linked. Without a
// device the program says why and exits with 77, which CTest reports as skipped.

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>

#include "cuda/cuda_backend.h"
#include "tests/support/op_test.h"

namespace quire::test {

std::vector<OpBackend>& op_backends() {
  static std::vector<OpBackend> backends = [] {
    if (const std::string reason = cuda_unavailable(); !reason.empty()) {
      std::fprintf(stderr, "skipped: %s\n", reason.c_str());
      std::exit(77);
    }
    std::vector<OpBackend> list;
    auto device = make_cuda_device({});
    auto ops = make_cuda_ops(*device);
    list.push_back({"cuda", std::move(device), std::move(ops)});
    return list;
  }();
  return backends;
}

TEST_CASE("what the driver does not have is told", "[ops][attention]") {
  const bool lacks = std::getenv("QUIRE_EMULATION_TENSOR_MAPS") != nullptr;
  CHECK(cuda_lacks().empty() != lacks);
}

}  // namespace quire::test
