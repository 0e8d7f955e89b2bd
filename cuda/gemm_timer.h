#pragma once
// Which of some algorithms is the fastest, measured on the device: each runs on its own operands,
// with the weight no longer in the L2 cache as far as writing the workspace drives it out. Stops
// when a time is over, so that a start takes no longer however many products a model has.

#include <chrono>

#include "cuda/gemm_plan.h"
#include "cuda/runtime/handles.h"

namespace quire::cuda {

class GemmTimer {
 public:
  GemmTimer(const GemmWorkspace& workspace, double most_seconds)
      : workspace_(workspace), most_seconds_(most_seconds) {}

  // Is there time left?
  bool has_time() const { return spent_ < most_seconds_; }
  double seconds() const { return spent_; }
  // The place of the fastest of those that run, none: none does. What the library takes for the
  // best stays it where no other saves kGain of its time. Waits for the stream; overwrites
  // operands.out.
  std::optional<std::size_t> fastest(GemmPlan& plan, const std::vector<GemmAlgorithm>& algorithms,
                                     std::int64_t tokens, const GemmOperands& operands,
                                     cudaStream_t stream);

  static constexpr double kGain = 0.03;

 private:
  // Seconds of one run, the least of some; none: refused.
  std::optional<double> time(GemmPlan& plan, const GemmAlgorithm& algorithm, std::int64_t tokens,
                             const GemmOperands& operands, double best, cudaStream_t stream);

  GemmWorkspace workspace_;
  double most_seconds_;
  EventHandle begin_, end_;
  double spent_ = 0;
};

}  // namespace quire::cuda
