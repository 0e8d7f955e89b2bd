#pragma once
// One problem's descriptors of cuBLASLt. Everything is column-major there, so out [T, N] is
// computed as its transpose [N, T] = weight [N, K] · xᵀ, with the weight read transposed and x as
// it lies.

#include <string>
#include <vector>

#include "cuda/gemm_problem.h"
#include "cuda/runtime/cublaslt.h"

namespace quire::cuda {

// Throws Failure naming the call.
void check_blas(cublasStatus_t status, const char* call);
#define BLAS_CHECK(call) ::quire::cuda::check_blas((call), #call)

// That the library does not have this product: another may be tried, and nothing was queued.
constexpr bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

// Does the library that is opened, and the one that this is built with, know scales by vectors?
bool has_scale_vectors();

struct GemmAlgorithm {
  cublasLtMatmulAlgo_t data{};
  bool sums_fast = false;  // sums of fp8 as the library makes them fastest
};

// Scratch of the device for products.
struct GemmWorkspace {
  void* data;
  std::size_t bytes;
};

class GemmPlan {
 public:
  GemmPlan(cublasLtHandle_t handle, const GemmProblem& problem);
  ~GemmPlan();
  GemmPlan(const GemmPlan&) = delete;
  GemmPlan& operator=(const GemmPlan&) = delete;

  // Of that many tokens, what the library takes for the best first; none: it refuses.
  std::vector<GemmAlgorithm> candidates(int most, std::int64_t tokens, const GemmOperands& operands,
                                        std::size_t workspace_bytes);
  // Would it run with so many tokens?
  bool accepts(const GemmAlgorithm& algorithm, std::int64_t tokens, const GemmOperands& operands,
               std::size_t workspace_bytes);
  // Of the first tokens; SUCCESS or a refusal. Throws Failure for anything else.
  cublasStatus_t run(const GemmAlgorithm& algorithm, std::int64_t tokens,
                     const GemmOperands& operands, const GemmWorkspace& workspace,
                     cudaStream_t stream);

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value);
  void set_formats();
  void make_sums(bool fast);
  void point_at(const GemmOperands& operands, std::int64_t tokens);
  std::vector<GemmAlgorithm> ask(int most, std::size_t workspace_bytes);

  cublasLtHandle_t handle_;
  const GemmProblem problem_;
  bool may_be_fast_ = false, sums_fast_ = false;  // sums of fp8; as they are set
  std::int64_t tokens_ = 0;  // of the layouts
  cublasLtMatrixLayout_t weight_ = nullptr, x_ = nullptr, out_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
};

}  // namespace quire::cuda
