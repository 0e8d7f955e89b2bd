#pragma once
// What a case of cuda_ops_perf has: a device, its operators, tensors on it, and the limits that
// this run probed, beside which it is reported.

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "cuda/cuda_backend.h"
#include "cuda/cuda_traits.h"
#include "cuda/gemm.h"
#include "tests/perf/cuda_probes.h"
#include "tests/perf/perf_record.h"

namespace quire::perf {

class Bench {
 public:
  explicit Bench(bool tiny)
      : device_(make_cuda_device({})),
        ops_(make_cuda_ops(*device_)),
        gemm_workspace_(device_->allocate(cuda::kGemmWorkspaceBytes, MemoryPurpose::kernels)),
        gemm_(cuda::make_gemm({.workspace = gemm_workspace_.data()})),
        chosen_gemm_(
            cuda::make_gemm({.workspace = gemm_workspace_.data(), .choosing_seconds = 10})),
        tiny_(tiny) {
    limits_ = probe_gpu(*device_, *ops_, tiny);
    chosen_gemm_->begin_choosing();
  }
  Ops& ops() { return *ops_; }
  cuda::Gemm& gemm() { return *gemm_; }
  // Its algorithms are the fastest of those that are offered, at a shape's first product.
  cuda::Gemm& chosen_gemm() { return *chosen_gemm_; }
  StreamRef stream() { return device_->stream(); }
  bool tiny() const { return tiny_; }
  std::int64_t size(std::int64_t full, std::int64_t tiny) const { return tiny_ ? tiny : full; }
  // How many copies of a tensor of these bytes a case should go through, so that none is in the L2
  // cache when its turn comes.
  std::int64_t copies(std::int64_t bytes) const {
    return std::clamp<std::int64_t>((std::int64_t{512} << 20) / bytes, 1, tiny_ ? 2 : 64);
  }

  TensorView zeros(DType dtype, std::initializer_list<std::int64_t> extents) {
    const TensorView shape(nullptr, dtype, extents);
    const Buffer& buffer = buffers_.emplace_back(device_->allocate_zeroed(shape.bytes()));
    return {buffer.data(), dtype, extents};
  }
  TensorView random(std::initializer_list<std::int64_t> extents, float scale = 1.f) {
    const TensorView tensor = zeros(DType::bf16, extents);
    fill_bf16(tensor, scale, stream());
    return tensor;
  }
  template <class T>
  TensorView upload(const std::vector<T>& values, std::initializer_list<std::int64_t> extents) {
    const TensorView tensor = zeros(dtype_of<T>, extents);
    device_->copy(tensor.data(), values.data(), values.size() * sizeof(T), stream());
    device_->synchronize(stream());
    return tensor;
  }
  void forget_tensors() { buffers_.clear(); }

  void memory_bound(const std::string& name, double goal, double bytes, double seconds) const {
    Record("kernel", name)
        .number("us", seconds * 1e6)
        .number("gb_s", bytes / seconds * 1e-9)
        .number("share_of_read", bytes / seconds / limits_.read_bytes)
        .number("goal", goal);
  }
  void compute_bound(const std::string& name, double flops, double seconds) const {
    Record("kernel", name)
        .number("us", seconds * 1e6)
        .number("tflop_s", flops / seconds * 1e-12)
        .number("share_of_gemm", flops / seconds / limits_.bf16_flops);
  }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  Buffer gemm_workspace_;
  std::unique_ptr<cuda::Gemm> gemm_, chosen_gemm_;
  bool tiny_;
  GpuLimits limits_;
  std::vector<Buffer> buffers_;
};

// Attention over a paged cache, decode and prompts, in cuda_attention_perf.cpp.
void attention_cases(Bench& bench);

}  // namespace quire::perf
