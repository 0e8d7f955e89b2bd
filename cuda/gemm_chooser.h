#pragma once
// Chooses algorithms while an engine starts: what was kept from a former start, else the fastest of
// what the library offers, else, when there is no time left, what it takes for the best.

#include <optional>
#include <string>

#include "cuda/gemm_choices.h"
#include "cuda/gemm_timer.h"

namespace quire::cuda {

using MaybeAlgorithm = std::optional<GemmAlgorithm>;  // none: the library refuses

class GemmChooser {
 public:
  GemmChooser(const GemmWorkspace& workspace, const std::string& choices_folder,
              double most_seconds);

  // For the bucket, tried with so many tokens, which the operands have at least.
  MaybeAlgorithm choose(GemmPlan& plan, const GemmProblem& problem, std::int64_t bucket,
                        std::int64_t tokens, const GemmOperands& operands, cudaStream_t stream);
  // Writes what was measured.
  void keep();
  // Sentences for a log.
  const std::string& trouble() const { return trouble_; }
  std::string summary() const;

 private:
  static constexpr int kCandidates = 8;

  GemmWorkspace workspace_;
  GemmTimer timer_;
  GemmChoices choices_;
  std::string trouble_;
  int num_known_ = 0, num_measured_ = 0, num_left_ = 0;
};

}  // namespace quire::cuda
