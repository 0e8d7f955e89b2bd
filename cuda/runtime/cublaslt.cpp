#include "cuda/runtime/cublaslt.h"

namespace quire::cuda {
namespace {

constexpr std::size_t kOldest = 120400;  // major · 10000 + minor · 100 + patch
constexpr const char* kHowTo =
    "cuBLASLt makes matrix products: 12.4 or later, package libcublas of the CUDA toolkit or the "
    "Python package nvidia-cublas";

}  // namespace

std::string why_no_cublaslt(const std::string& missing, std::size_t version) {
  if (!missing.empty()) return std::string(kHowTo) + "; " + missing;
  if (version >= kOldest) return "";
  return std::string(kHowTo) + ", not " + std::to_string(version / 10000) + "." +
         std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
}

}  // namespace quire::cuda
