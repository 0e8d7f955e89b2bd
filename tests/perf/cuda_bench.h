#pragma once
// What a case of cuda_ops_perf has: a device, its operators, tensors on it, and the limits that
// this run probed, beside which it is reported. What becomes of a case is the run's purpose.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/cuda_backend.h"
#include "cuda/cuda_traits.h"
#include "cuda/gemm.h"
#include "cuda/runtime/variants.h"
#include "tests/perf/cuda_probes.h"

namespace quire::perf {

enum class Purpose : std::uint8_t {
  speed,     // each case beside the limits
  variants,  // some cases in several ways beside each other: records of group ab
  profile    // some cases once, for a profiler that is told when they run
};

// A way of doing what a case does.
struct Way {
  std::string label;
  std::function<void()> body = {};  // empty: the case's own
  cuda::Variants variants = {};
};

class Bench {
 public:
  // only: of names that contain it; probes are left out where no case is put beside them.
  Bench(Purpose purpose, bool tiny, std::string only);

  // What the last case had is forgotten. False: this run does not want the case.
  bool begin(const std::string& name);
  // For cases that are about nothing but their ways.
  bool begin_ways(const std::string& name) {
    return purpose_ == Purpose::variants && contains(name) && (buffers_.clear(), true);
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
  // u8 or fp8_e4m3, of which none is a NaN: products of zeros would run at a lower power.
  TensorView codes(DType dtype, std::initializer_list<std::int64_t> extents) {
    const TensorView tensor = zeros(dtype, extents);
    fill_codes(tensor, stream());
    return tensor;
  }
  template <class T>
  TensorView upload(const std::vector<T>& values, std::initializer_list<std::int64_t> extents) {
    const TensorView tensor = zeros(dtype_of<T>, extents);
    device_->copy(tensor.data(), values.data(), values.size() * sizeof(T), stream());
    device_->synchronize(stream());
    return tensor;
  }
  // A value for each of so many.
  template <class T>
  TensorView each(std::int64_t count, T value) {
    return upload(std::vector<T>(static_cast<std::size_t>(count), value), {count});
  }
  TensorView filled(float value, std::initializer_list<std::int64_t> extents) {
    const auto count = static_cast<std::size_t>(TensorView(nullptr, DType::f32, extents).numel());
    return upload(std::vector(count, value), extents);
  }
  template <class T>
  TensorView counted(std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(i);
    return upload(values, {count});
  }

  // body queues the case's work, `does` times over (the layers of a model); times: how often that
  // is done between two events, as is wanted of what takes a few microseconds. Bytes, operations
  // and what is reported are of one. goal: share of what the probe reads, 0: none.
  struct Repeats {
    int times = 1;
    std::int64_t does = 1;
  };
  void memory_bound(const std::string& name, double goal, double bytes,
                    const std::function<void()>& body, Repeats repeats = {1, 1});
  void compute_bound(const std::string& name, double flops, const std::function<void()>& body,
                     Repeats repeats = {1, 1});
  // In turn, so that none has a warmer device; the first is what is chosen.
  void compare(const std::string& name, const std::vector<Way>& ways, Repeats repeats = {1, 1});

 private:
  bool contains(const std::string& name) const { return name.find(only_) != std::string::npos; }
  // Seconds of the body where the purpose is speed; otherwise the case has had what this run wants.
  std::optional<double> seconds_of(const std::string& name, const std::function<void()>& body,
                                   Repeats repeats);

  std::unique_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  Buffer gemm_workspace_;
  std::unique_ptr<cuda::Gemm> gemm_, chosen_gemm_;
  Purpose purpose_;
  bool tiny_;
  std::string only_;
  GpuLimits limits_;
  std::vector<Buffer> buffers_;
};

// The cases, each family in a file of its own.
void attention_cases(Bench& bench);
void latent_cases(Bench& bench);
void linear_cases(Bench& bench);
void expert_cases(Bench& bench);
void state_cases(Bench& bench);
void row_cases(Bench& bench);
void draw_cases(Bench& bench);

}  // namespace quire::perf
