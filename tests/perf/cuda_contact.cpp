#include "tests/perf/cuda_contact.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include "cuda/cuda_backend.h"
#include "cuda/runtime/capability.h"
#include "cuda/runtime/cublaslt.h"
#include "tests/perf/cuda_probes.h"
#include "tests/perf/perf_record.h"

namespace quire::perf {
namespace {

std::string version_of(std::size_t number, std::size_t major, std::size_t minor) {
  return std::to_string(number / major) + "." + std::to_string(number % major / minor) + "." +
         std::to_string(number % minor);
}

void describe_cublaslt() {
  Dl_info from{};
  dladdr(cuda::cublaslt().symbol("cublasLtGetVersion"), &from);
  Record("device", "cuBLASLt")
      .text("version", version_of(cuda::cublasLtGetVersion(), 10000, 100))
      .text("file", from.dli_fname != nullptr ? from.dli_fname : "?");
}

void describe_device() {
  int driver = 0;
  CUDA_CHECK(cudaDriverGetVersion(&driver));
  Record("device", "CUDA").number("driver", driver);
  const auto device = make_cuda_device({});
  Record("device", "memory")
      .number("gib", static_cast<double>(device->memory().total) * 0x1p-30)
      .number("available_gib", static_cast<double>(device->memory().available) * 0x1p-30);
  const std::string lacks = cuda_lacks(), no_ranks = cuda_ranks_unavailable();
  Record("device", "capability")
      .number("compute", cuda::compute_capability())
      .number("multiprocessors", cuda::processor_count())
      .number("shared_memory", static_cast<double>(cuda::shared_memory_limit()))
      .number("warpgroups", cuda::is_hopper())
      .text("lacks", lacks.empty() ? "nothing" : lacks);
  Record("device", "NCCL").text("said", no_ranks.empty() ? cuda_ranks_library() : no_ranks);
}

// Few rows are our own kernel's, many cuBLASLt's.
void multiply(std::int64_t rows) {
  const auto device = make_cuda_device({});
  const auto ops = make_cuda_ops(*device);
  const Buffer x = device->allocate_zeroed(rows * 512 * 2),
               weight = device->allocate_zeroed(512 * 512 * 2),
               out = device->allocate_zeroed(rows * 512 * 2);
  const auto matrix = [](const Buffer& b, std::int64_t n) {
    return TensorView(b.data(), DType::bf16, {n, 512});
  };
  fill_bf16(matrix(x, rows), 1.f, device->stream());
  fill_bf16(matrix(weight, 512), 1.f, device->stream());
  const double seconds = device_seconds(device->stream(), [&] {
    ops->linear(matrix(out, rows), matrix(x, rows), matrix(weight, 512), {}, device->stream());
  });
  Record("device", "product of " + std::to_string(rows) + " rows").number("us", seconds * 1e6);
}

}  // namespace

void first_contact() {
  describe_device();
  describe_cublaslt();
  for (const std::int64_t rows : {4, 64}) multiply(rows);
}

}  // namespace quire::perf
