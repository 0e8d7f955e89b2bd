// Matrix products by cuBLASLt. An algorithm is chosen for each problem and bucket of tokens, from
// what the library offers for the most tokens of the bucket: its first, or at start-up the fastest.
// One that does not run with fewer tokens is replaced for these; where none does, the product is
// refused, which is no error.

#include <algorithm>
#include <map>

#include "cuda/cuda_traits.h"
#include "cuda/gemm.h"
#include "cuda/gemm_chooser.h"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/capability.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kCandidates = 8;
constexpr std::size_t kMostProblems = 512;  // a model has some ten
constexpr std::size_t kMostApart = 1024;    // numbers of tokens of a problem

// Only Hopper has scales by vectors: 10.0 has others.
bool device_has_fp8() { return compute_capability() == 90 && has_scale_vectors(); }

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

struct Planned {
  GemmPlan plan;
  std::uint64_t last_use = 0;
  bool has_refused = false;
  std::map<std::int64_t, MaybeAlgorithm> buckets = {};
  std::map<std::int64_t, MaybeAlgorithm> apart = {};  // tokens that the bucket's does not run with

  Planned(cublasLtHandle_t handle, const GemmProblem& problem) : plan(handle, problem) {}
};

class CublasLtGemm final : public Gemm {
 public:
  explicit CublasLtGemm(const GemmOptions& options)
      : workspace_{options.workspace, kGemmWorkspaceBytes},
        options_(options),
        has_fp8_(device_has_fp8()) {
    BLAS_CHECK(cublasLtCreate(&handle_));
  }
  ~CublasLtGemm() override {
    planned_.clear();
    cublasLtDestroy(handle_);
  }
  bool has_fp8() const override { return has_fp8_; }

  void begin_choosing() override {
    chooser_.emplace(workspace_, options_.choices_folder, options_.choosing_seconds);
  }
  void end_choosing() override {
    if (!chooser_) return;
    chooser_->keep();
    report(chooser_->trouble());
    report(chooser_->summary());
    chooser_.reset();
  }

 private:
  bool multiply(TensorView out, TensorView x, TensorView weight, TensorView bias,
                StreamRef stream) override {
    const GemmOperands operands{out, x, weight, bias};
    return run(GemmProblem::of(operands, WeightFormat::plain), operands, native(stream));
  }
  bool multiply_fp8(const Fp8Product& p, StreamRef stream) override {
    const GemmOperands operands{p.out, p.x, p.weight.data, p.bias, p.x_scales, p.weight.scales};
    return run(GemmProblem::of(operands, p.weight.format), operands, native(stream));
  }
  bool multiply_heads(TensorView out, TensorView x, TensorView weight, StreamRef stream) override {
    const GemmOperands operands{out, x, weight, {}};
    return run(GemmProblem::of_heads(operands), operands, native(stream));
  }

  bool run(const GemmProblem& problem, const GemmOperands& operands, cudaStream_t stream) {
    Planned& planned = planned_for(problem);
    const std::int64_t tokens = operands.out.extent(0);
    const auto runs = [&](const MaybeAlgorithm& algorithm) {
      return algorithm && planned.plan.run(*algorithm, tokens, operands, workspace_, stream) ==
                              CUBLAS_STATUS_SUCCESS;
    };
    if (const auto found = planned.apart.find(tokens); found != planned.apart.end())
      return runs(found->second);
    if (runs(algorithm_for(planned, problem, operands, stream))) return true;
    if (planned.apart.size() >= kMostApart) planned.apart.clear();
    for (const GemmAlgorithm& algorithm :
         planned.plan.candidates(kCandidates, tokens, operands, workspace_.bytes)) {
      if (!runs(algorithm)) continue;
      planned.apart.emplace(tokens, algorithm);
      return true;
    }
    planned.apart.emplace(tokens, std::nullopt);
    if (!std::exchange(planned.has_refused, true)) {
      report("cuBLASLt has no algorithm for " + problem.shape() + " with T = " +
             std::to_string(tokens) + "; an own kernel computes such products, more slowly");
    }
    return false;
  }

  // Of the bucket. At start-up it, and all below, are tried in the very operands.
  MaybeAlgorithm algorithm_for(Planned& planned, const GemmProblem& problem,
                               const GemmOperands& operands, cudaStream_t stream) {
    const std::int64_t tokens = operands.out.extent(0), last = gemm_bucket(tokens);
    if (chooser_ && !is_capturing(stream)) {
      std::int64_t bucket = problem.format == WeightFormat::fp8_blocks ? 8 : 1;
      for (; bucket <= last; bucket = next_gemm_bucket(bucket)) {
        if (planned.buckets.contains(bucket)) continue;
        const std::int64_t tried = std::min(bucket, tokens);
        planned.buckets.emplace(
            bucket, chooser_->choose(planned.plan, problem, bucket, tried, operands, stream));
      }
    }
    const auto found = planned.buckets.find(last);
    if (found != planned.buckets.end()) return found->second;
    const auto offers = planned.plan.candidates(1, last, operands, workspace_.bytes);
    const MaybeAlgorithm first = offers.empty() ? std::nullopt : MaybeAlgorithm(offers.front());
    return planned.buckets.emplace(last, first).first->second;
  }

  Planned& planned_for(const GemmProblem& problem) {
    auto found = planned_.find(problem);
    if (found == planned_.end()) {
      if (planned_.size() >= kMostProblems) {
        const auto by_use = [](const auto& a, const auto& b) {
          return a.second.last_use < b.second.last_use;
        };
        planned_.erase(std::ranges::min_element(planned_, by_use));
      }
      found = planned_.try_emplace(problem, handle_, problem).first;
    }
    found->second.last_use = ++uses_;
    return found->second;
  }

  void report(const std::string& sentence) const {
    if (options_.report && !sentence.empty()) options_.report(sentence);
  }

  cublasLtHandle_t handle_ = nullptr;
  const GemmWorkspace workspace_;
  const GemmOptions options_;
  const bool has_fp8_;
  std::uint64_t uses_ = 0;
  std::map<GemmProblem, Planned> planned_;
  std::optional<GemmChooser> chooser_;
};

}  // namespace

std::string gemm_unavailable() {
  const std::string& missing = cublaslt().missing();
  return why_no_cublaslt(missing, missing.empty() ? cublasLtGetVersion() : 0);
}

std::unique_ptr<Gemm> make_gemm(const GemmOptions& options) {
  return std::make_unique<CublasLtGemm>(options);
}

}  // namespace quire::cuda
