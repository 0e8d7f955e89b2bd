#pragma once
// Products by cuda::Gemm on the emulated device, beside a plain loop.

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "cuda/cuda_backend.h"
#include "cuda/cuda_traits.h"
#include "cuda/gemm.h"
#include "tests/cuda_emulation/cublaslt.h"
#include "tests/support/op_test.h"

namespace quire::cuda {

// A folder for one test.
class TempFolder {
 public:
  TempFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("quire-gemm-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string path() const { return (path_ / "quire").string(); }

 private:
  std::filesystem::path path_;
};

class GemmBench {
 public:
  GemmBench() {
    blas() = {};
    blas().records = true;
  }
  ~GemmBench() { blas() = {}; }
  GemmBench(const GemmBench&) = delete;
  GemmBench& operator=(const GemmBench&) = delete;

  emulation::Blas& blas() { return emulation::blas(); }
  Device& device() { return *device_; }
  StreamRef stream() { return device_->stream(); }
  const std::vector<std::string>& reports() const { return reports_; }

  std::unique_ptr<Gemm> make(const std::string& folder = "", double seconds = 60) {
    return make_gemm({.workspace = workspace_.data(),
                      .choices_folder = folder,
                      .report = [this](const std::string& text) { reports_.push_back(text); },
                      .choosing_seconds = seconds});
  }

  // Random numbers on the device, of which the host keeps what they are.
  TensorView tensor(DType dtype, std::vector<std::int64_t> extents) {
    return upload(test::random_tensor(rng_, dtype, std::move(extents)));
  }
  TensorView upload(const test::HostTensor& host) {
    const Buffer& buffer = buffers_.emplace_back(device_->allocate(host.bytes.size()));
    device_->copy(buffer.data(), host.bytes.data(), host.bytes.size(), stream());
    device_->synchronize(stream());
    const TensorView flat(buffer.data(), host.dtype, {host.numel()});
    const auto& e = host.extents;
    if (e.size() == 2) return flat.reshape({e[0], e[1]});
    if (e.size() == 3) return flat.reshape({e[0], e[1], e[2]});
    return flat;
  }
  test::HostTensor read(TensorView tensor) {
    std::vector<std::int64_t> extents;
    for (int i = 0; i < tensor.rank(); ++i) extents.push_back(tensor.extent(i));
    test::HostTensor host(tensor.dtype(), extents);
    device_->copy(host.bytes.data(), tensor.data(), host.bytes.size(), stream());
    device_->synchronize(stream());
    return host;
  }

  // Numbers of algorithms that ran since it was last asked.
  std::vector<int> algorithms_run() {
    std::vector<int> numbers;
    for (const auto& run : blas().runs) numbers.push_back(run.algorithm);
    blas().runs.clear();
    return numbers;
  }

 private:
  std::unique_ptr<Device> device_ = make_cuda_device({});
  Buffer workspace_ = device_->allocate(kGemmWorkspaceBytes);
  std::mt19937 rng_{7};
  std::vector<Buffer> buffers_;
  std::vector<std::string> reports_;
};

// Of the bench's matrices, with so many rows of x.
struct Case {
  TensorView out, x, weight, bias = {};

  Case(GemmBench& bench, DType dtype, std::int64_t tokens, std::int64_t n, std::int64_t k,
       bool has_bias = false)
      : out(bench.tensor(dtype, {tokens, n})),
        x(bench.tensor(dtype, {tokens, k})),
        weight(bench.tensor(dtype, {n, k})) {
    if (has_bias) bias = bench.tensor(dtype, {n});
  }
  void run(Gemm& gemm, GemmBench& bench, std::int64_t tokens) const {
    gemm.linear(out.rows(0, tokens), x.rows(0, tokens), weight, bias, bench.stream());
    bench.device().synchronize(bench.stream());
  }
  // Against sums in double.
  void check(GemmBench& bench, std::int64_t tokens) const {
    const auto got = bench.read(out), a = bench.read(x), b = bench.read(weight);
    const auto add = bias.empty() ? test::HostTensor() : bench.read(bias);
    const std::int64_t n = out.extent(1), k = x.extent(1);
    const double step = out.dtype() == DType::f32 ? 1e-5 : out.dtype() == DType::f16 ? 1e-3 : 8e-3;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = bias.empty() ? 0 : add.at(j), size = std::abs(sum);
        for (std::int64_t i = 0; i < k; ++i) {
          sum += double{a.at(t * k + i)} * b.at(j * k + i);
          size += std::abs(double{a.at(t * k + i)} * b.at(j * k + i));
        }
        INFO("row " << t << ", column " << j);
        REQUIRE(std::abs(got.at(t * n + j) - sum) <= step * size);
      }
    }
  }
};

}  // namespace quire::cuda
