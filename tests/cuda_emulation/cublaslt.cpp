// cuBLASLt where devices are emulated: column-major products as their descriptors say, float32 sums
// in the order of the columns, queued like a launch. What it does not document is refused. Programs
// open themselves and find it under the library's names.

#include "cublaslt.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "blas_call.h"
#include "cuda/runtime/cublaslt.h"
#include "kernel.h"

struct cublasLtContext {};
struct cublasLtMatmulPreferenceOpaque_t {
  std::size_t workspace_bytes = 0;
  std::uint32_t alignment[4] = {256, 256, 256, 256};
};

namespace {

using namespace emulation;
using Layout = cublasLtMatrixLayoutOpaque_t;
using Operation = cublasLtMatmulDescOpaque_t;
constexpr std::uint64_t kMagic = 0x656d756c61746564;

BlasProduct product_of(const BlasCall& c, int algorithm) {
  return {.n = static_cast<std::int64_t>(c.d.rows),
          .tokens = static_cast<std::int64_t>(c.d.columns),
          .k = static_cast<std::int64_t>(c.a.rows),
          .batch = c.d.batch,
          .type = c.a.type,
          .out = c.d.type,
          .sums_fast = c.operation.fast_sums != 0,
          .algorithm = algorithm};
}

cublasLtMatmulAlgo_t make_algorithm(const BlasCall& c, int number) {
  return {{kMagic, static_cast<std::uint64_t>(number), c.d.rows, c.a.rows}};
}
// Its number, −1: not one for this product.
int number_of(const cublasLtMatmulAlgo_t& algorithm, const BlasCall& c) {
  const auto& [magic, number, n, k] = reinterpret_cast<const std::uint64_t(&)[4]>(algorithm.data);
  const bool known = magic == kMagic && n == c.d.rows && k == c.a.rows &&
                     number < static_cast<std::uint64_t>(blas().algorithms);
  return known ? static_cast<int>(number) : -1;
}

// From the first byte to the last one of the last matrix.
std::size_t bytes_of(const Layout& m) {
  const auto last = static_cast<std::int64_t>(m.columns - 1) * m.leading + (m.batch - 1) * m.step;
  return (static_cast<std::size_t>(last) + m.rows) * size_of(m.type);
}
bool is_on_device(const void* data, std::size_t bytes) {
  return space_of(data) == Space::device && is_whole(data, bytes);
}

template <class T>
cublasStatus_t take(T& to, const void* value, std::size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t destroy(T* made) {
  delete made;
  --blas().num_matrices;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

emulation::Blas& emulation::blas() {
  static Blas blas;
  return blas;
}

// The empty name is the program's own, as dlopen(nullptr) is.
const quire::cuda::SharedLibrary& quire::cuda::cublaslt() {
  static const SharedLibrary program({""}, {});
  return program;
}

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusString(cublasStatus_t) { return "emulated cuBLASLt error"; }
// QUIRE_EMULATION_CUBLASLT_VERSION=120300: an old one.
std::size_t cublasLtGetVersion() {
  const char* text = std::getenv("QUIRE_EMULATION_CUBLASLT_VERSION");
  return text != nullptr ? static_cast<std::size_t>(std::atoi(text)) : CUBLAS_VERSION;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t leading) {
  LOCK;
  *layout = new Layout{type, rows, columns, leading};
  ++blas().num_matrices;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  LOCK;
  return destroy(layout);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return take(layout->columns, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return take(layout->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return take(layout->step, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation, cublasComputeType_t,
                                        cudaDataType_t scale) {
  LOCK;
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *operation = new Operation;
  ++blas().num_matrices;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  LOCK;
  return destroy(operation);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t o,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(o->a_operation, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(o->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(o->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return take(o->bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return take(o->a_scales, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return take(o->b_scales, value, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return take(o->fast_sums, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
      return take(o->a_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
      return take(o->b_mode, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  LOCK;
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  ++blas().num_matrices;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  LOCK;
  return destroy(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    return take(preference->workspace_bytes, value, bytes);
  return take(preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value,
              bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  LOCK;
  ++blas().num_asked;
  *found = 0;
  const BlasCall call{*operation, *a, *b, *d};
  const bool is_fp8 = call.a.type == CUDA_R_8F_E4M3;
  for (const std::uint32_t alignment : preference->alignment)
    if (alignment < (is_fp8 ? 16 : 2)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const cublasStatus_t form = check_form(call);
  if (form != CUBLAS_STATUS_SUCCESS) return form;
  if (blas().refuses_offer && blas().refuses_offer(product_of(call, -1)))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  for (; *found < std::min(wanted, blas().algorithms); ++*found) {
    results[*found] = {.algo = make_algorithm(call, *found),
                       .workspaceSize = preference->workspace_bytes,
                       .state = CUBLAS_STATUS_SUCCESS,
                       .wavesCount = 1.f,
                       .reserved = {}};
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  LOCK;
  ++blas().num_checked;
  const BlasCall call{*operation, *a, *b, *d};
  *result = {.algo = *algorithm,
             .workspaceSize = 0,
             .state = check_form(call),
             .wavesCount = 1.f,
             .reserved = {}};
  if (number_of(*algorithm, call) < 0) result->state = CUBLAS_STATUS_INVALID_VALUE;
  return result->state;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  LOCK;
  const BlasCall call{*operation, *a_layout, *b_layout, *d_layout, a, b, d};
  const cublasStatus_t form = check_form(call);
  if (form != CUBLAS_STATUS_SUCCESS) return form;
  const int number = number_of(*algorithm, call);
  if (number < 0 || *static_cast<const float*>(alpha) != 1.f ||
      *static_cast<const float*>(beta) != 0.f || c != d)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!is_on_device(a, bytes_of(call.a)) || !is_on_device(b, bytes_of(call.b)) ||
      !is_on_device(d, bytes_of(call.d)) || !is_on_device(workspace, workspace_bytes))
    return CUBLAS_STATUS_EXECUTION_FAILED;
  const BlasProduct product = product_of(call, number);
  if (blas().refuses_run && blas().refuses_run(product)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (blas().fails && blas().fails(product)) return CUBLAS_STATUS_INTERNAL_ERROR;
  if (blas().records) blas().runs.push_back(product);
  const double microseconds = blas().microseconds ? blas().microseconds(product) : 0;
  const cudaError_t error = enqueue(stream, [call, microseconds] {
    for (std::int64_t i = 0; i < call.d.batch; ++i) multiply(call, i);
    spend(microseconds);
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
