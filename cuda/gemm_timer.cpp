#include "cuda/gemm_timer.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kRuns = 3;
constexpr double kHopeless = 1.5;  // of the best so far: once is enough

}  // namespace

std::optional<double> GemmTimer::time(GemmPlan& plan, const GemmAlgorithm& algorithm,
                                      std::int64_t tokens, const GemmOperands& operands,
                                      double best, cudaStream_t stream) {
  // The first run loads the kernel. What fails is not chosen, whatever it says.
  try {
    if (plan.run(algorithm, tokens, operands, workspace_, stream) != CUBLAS_STATUS_SUCCESS)
      return {};
  } catch (const Failure&) {
    return {};
  }
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRuns && (i == 0 || least < kHopeless * best); ++i) {
    CUDA_CHECK(cudaMemsetAsync(workspace_.data, 0, workspace_.bytes, stream));
    CUDA_CHECK(cudaEventRecord(begin_.get(), stream));
    plan.run(algorithm, tokens, operands, workspace_, stream);
    CUDA_CHECK(cudaEventRecord(end_.get(), stream));
    CUDA_CHECK(cudaEventSynchronize(end_.get()));
    least = std::min(least, seconds_between(begin_, end_));
  }
  return least;
}

std::optional<std::size_t> GemmTimer::fastest(GemmPlan& plan,
                                              const std::vector<GemmAlgorithm>& algorithms,
                                              std::int64_t tokens, const GemmOperands& operands,
                                              cudaStream_t stream) {
  using Clock = std::chrono::steady_clock;
  if (begin_.get() == nullptr) {
    begin_ = create_event(/*timing=*/true);
    end_ = create_event(/*timing=*/true);
  }
  // What is queued already is not this measurement's.
  CUDA_CHECK(cudaStreamSynchronize(stream));
  const auto start = Clock::now();
  const double before = spent_;
  std::optional<std::size_t> fastest;
  double first = 0, best = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < algorithms.size() && has_time(); ++i) {
    const auto seconds = time(plan, algorithms[i], tokens, operands, best, stream);
    spent_ = before + std::chrono::duration<double>(Clock::now() - start).count();
    if (!seconds) continue;
    if (!fastest) first = *seconds;
    if (!fastest || (*seconds < best && *seconds < first * (1 - kGain))) {
      fastest = i;
      best = *seconds;
    }
  }
  return fastest;
}

}  // namespace quire::cuda
