#include "cuda/gemm_plan.h"

#include <algorithm>

#include "base/error.h"

namespace quire::cuda {
namespace {

cudaDataType_t blas_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    case DType::fp8_e4m3:
      return CUDA_R_8F_E4M3;
    default:
      throw Failure(ErrorCode::internal,
                    "no matrix product for dtype " + std::string(name_of(dtype)));
  }
}

#if CUBLAS_VERSION >= 120900
constexpr bool kHasScaleVectors = true;
#else
constexpr bool kHasScaleVectors = false;  // the toolkit that this is built with has no names
#endif
constexpr std::size_t kFirstWithScaleVectors = 120900;  // cuBLAS 12.9

cublasLtMatrixLayout_t make_layout(DType dtype, std::int64_t rows, const GemmPlace& at,
                                   std::int32_t batch, std::int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  BLAS_CHECK(cublasLtMatrixLayoutCreate(&layout, blas_type(dtype), static_cast<std::uint64_t>(rows),
                                        static_cast<std::uint64_t>(columns), at.leading));
  if (batch == 1) return layout;
  BLAS_CHECK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                              sizeof batch));
  BLAS_CHECK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                              &at.batch_stride, sizeof at.batch_stride));
  return layout;
}

}  // namespace

void check_blas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Failure(ErrorCode::internal, std::string(call) + ": " + cublasLtGetStatusString(status));
}

bool has_scale_vectors() {
  return kHasScaleVectors && cublasLtGetVersion() >= kFirstWithScaleVectors;
}

GemmPlan::GemmPlan(cublasLtHandle_t handle, const GemmProblem& p) : handle_(handle), problem_(p) {
  weight_ = make_layout(p.weight, p.k, p.weight_at, p.batch, p.n);
  x_ = make_layout(p.x, p.k, p.x_at, p.batch, 1);
  out_ = make_layout(p.out, p.n, p.out_at, p.batch, 1);
  BLAS_CHECK(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (p.bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, blas_type(*p.bias));
  }
  set_formats();
}

GemmPlan::~GemmPlan() {
  cublasLtMatmulDescDestroy(operation_);
  for (const cublasLtMatrixLayout_t layout : {weight_, x_, out_})
    cublasLtMatrixLayoutDestroy(layout);
}

template <class T>
void GemmPlan::set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
  BLAS_CHECK(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof value));
}

// Sums of fp8 that are not promoted to float32 on the way where a row has one scale: what vLLM
// does there (scaled_mm_sm90_fp8_dispatch.cuh has the schedules called FP8FastAccum); beside scales
// for blocks each block's sum is scaled in float32.
void GemmPlan::set_formats() {
#if CUBLAS_VERSION >= 120900
  if (problem_.format == WeightFormat::plain) return;
  const bool blocks = problem_.format == WeightFormat::fp8_blocks;
  set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, blocks ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
                                                : CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
  set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, blocks ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
                                                : CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
  may_be_fast_ = !blocks;
#endif
}

void GemmPlan::make_sums(bool fast) {
  if (fast == sums_fast_) return;
  sums_fast_ = fast;
  set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(fast));
}

void GemmPlan::point_at(const GemmOperands& o, std::int64_t tokens) {
  const auto set_pointer = [&](cublasLtMatmulDescAttributes_t attribute, const TensorView& to) {
    if (!to.empty()) set(attribute, static_cast<const void*>(to.data()));
  };
  set_pointer(CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias);
  set_pointer(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, o.weight_scales);
  set_pointer(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, o.x_scales);
  if (tokens == tokens_) return;
  for (const cublasLtMatrixLayout_t layout : {x_, out_})
    BLAS_CHECK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_COLS, &tokens,
                                                sizeof tokens));
  tokens_ = tokens;
}

std::vector<GemmAlgorithm> GemmPlan::ask(int most, std::size_t workspace_bytes) {
  cublasLtMatmulPreference_t preference = nullptr;
  BLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference));
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, problem_.weight_at.alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, problem_.x_at.alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, problem_.out_at.alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, problem_.out_at.alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most));
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, operation_, weight_, x_, out_, out_, preference, most, found.data(), &count);
  cublasLtMatmulPreferenceDestroy(preference);
  std::vector<GemmAlgorithm> algorithms;
  if (status != CUBLAS_STATUS_SUCCESS) return algorithms;
  for (int i = 0; i < std::min(count, most); ++i) {
    const auto& result = found[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back({result.algo, sums_fast_});
  }
  return algorithms;
}

std::vector<GemmAlgorithm> GemmPlan::candidates(int most, std::int64_t tokens,
                                                const GemmOperands& operands,
                                                std::size_t workspace_bytes) {
  point_at(operands, tokens);  // some algorithms are only offered beside the pointers
  make_sums(may_be_fast_);
  std::vector<GemmAlgorithm> found = ask(most, workspace_bytes);
  if (!found.empty() || !may_be_fast_) return found;
  make_sums(false);
  return ask(most, workspace_bytes);
}

bool GemmPlan::accepts(const GemmAlgorithm& algorithm, std::int64_t tokens,
                       const GemmOperands& operands, std::size_t workspace_bytes) {
  if (algorithm.sums_fast && !may_be_fast_) return false;
  point_at(operands, tokens);
  make_sums(algorithm.sums_fast);
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(handle_, operation_, weight_, x_, out_, out_, &algorithm.data,
                                 &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= workspace_bytes;
}

cublasStatus_t GemmPlan::run(const GemmAlgorithm& algorithm, std::int64_t tokens,
                             const GemmOperands& o, const GemmWorkspace& workspace,
                             cudaStream_t stream) {
  point_at(o, tokens);
  make_sums(algorithm.sums_fast);
  const float one = 1.f, zero = 0.f;
  const cublasStatus_t status = cublasLtMatmul(
      handle_, operation_, &one, o.weight.data(), weight_, o.x.data(), x_, &zero, o.out.data(),
      out_, o.out.data(), out_, &algorithm.data, workspace.data, workspace.bytes, stream);
  if (!is_refusal(status)) check_blas(status, "cublasLtMatmul");
  return status;
}

}  // namespace quire::cuda
