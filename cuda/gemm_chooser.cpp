#include "cuda/gemm_chooser.h"

#include <algorithm>

namespace quire::cuda {
namespace {

std::string device_name() {
  int device = 0;
  cudaDeviceProp properties{};
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  return properties.name;
}

std::string version_of(const GemmWorkspace& workspace) {
  int driver = 0;
  CUDA_CHECK(cudaDriverGetVersion(&driver));
  return "driver " + std::to_string(driver) + " cublaslt " + std::to_string(cublasLtGetVersion()) +
         " workspace " + std::to_string(workspace.bytes);
}

static_assert(sizeof(GemmChoice) == sizeof(cublasLtMatmulAlgo_t) + sizeof(std::uint64_t));
GemmChoice kept_form(const GemmAlgorithm& algorithm) {
  GemmChoice choice;
  std::ranges::copy(algorithm.data.data, choice.begin());
  choice.back() = algorithm.sums_fast ? 1 : 0;
  return choice;
}
GemmAlgorithm from_kept(const GemmChoice& choice) {
  GemmAlgorithm algorithm;
  std::copy_n(choice.begin(), choice.size() - 1, algorithm.data.data);
  algorithm.sums_fast = choice.back() != 0;
  return algorithm;
}

}  // namespace

GemmChooser::GemmChooser(const GemmWorkspace& workspace, const std::string& choices_folder,
                         double most_seconds)
    : workspace_(workspace),
      timer_(workspace, most_seconds),
      choices_(choices_folder, device_name(), version_of(workspace)),
      trouble_(choices_.trouble()) {}

MaybeAlgorithm GemmChooser::choose(GemmPlan& plan, const GemmProblem& problem, std::int64_t bucket,
                                   std::int64_t tokens, const GemmOperands& operands,
                                   cudaStream_t stream) {
  const std::string key = problem.key() + " t" + std::to_string(bucket);
  if (const auto known = choices_.find(key)) {
    const GemmAlgorithm algorithm = from_kept(*known);
    if (plan.accepts(algorithm, bucket, operands, workspace_.bytes)) {
      ++num_known_;
      return algorithm;
    }
  }
  const auto offers = plan.candidates(kCandidates, bucket, operands, workspace_.bytes);
  if (offers.empty()) return std::nullopt;
  if (offers.size() == 1) return offers.front();
  if (!timer_.has_time()) {
    ++num_left_;
    return offers.front();
  }
  const auto fastest = timer_.fastest(plan, offers, tokens, operands, stream);
  if (!fastest) return offers.front();
  ++num_measured_;
  choices_.add(key, kept_form(offers[*fastest]));
  return offers[*fastest];
}

void GemmChooser::keep() {
  const std::string failed = choices_.save();
  if (!failed.empty()) trouble_ += (trouble_.empty() ? "" : "; ") + failed;
}

std::string GemmChooser::summary() const {
  if (num_known_ + num_measured_ + num_left_ == 0) return "";
  const auto milliseconds = static_cast<int>(timer_.seconds() * 1e3);
  std::string text = "products of cuBLASLt: " + std::to_string(num_measured_) + " measured in " +
                     std::to_string(milliseconds) + " ms, " + std::to_string(num_known_) +
                     " known from a former start";
  if (num_left_ > 0) text += ", " + std::to_string(num_left_) + " for which no time was left";
  return text;
}

}  // namespace quire::cuda
