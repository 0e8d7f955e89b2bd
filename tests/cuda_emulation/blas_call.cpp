#include "blas_call.h"

#include <algorithm>
#include <type_traits>

#include "cuda/device/vec.cuh"
#include "kernel.h"

namespace emulation {
namespace {

using quire::View;
using Layout = cublasLtMatrixLayoutOpaque_t;
using Operation = cublasLtMatmulDescOpaque_t;
constexpr std::int64_t kScaleBlock = 128;

bool is_float(cudaDataType_t type) {
  return type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F;
}

bool has_fp8_form(const BlasCall& c) {
  const auto is_aligned = [](const Layout& layout) {
    return layout.leading * static_cast<std::int64_t>(size_of(layout.type)) % 16 == 0;
  };
  const Operation& o = c.operation;
  const bool rows = o.a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F && o.b_mode == o.a_mode;
  const bool blocks = o.a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F &&
                      o.b_mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
  return limits().capability == 90 && (rows || blocks) && (!blocks || c.d.columns % 4 == 0) &&
         c.a.rows % 16 == 0 && c.d.rows % 16 == 0 && is_aligned(c.a) && is_aligned(c.b) &&
         is_aligned(c.d) && o.a_scales != nullptr && o.b_scales != nullptr && c.d.batch == 1;
}

// One matrix of a column-major batch, as [columns, rows].
template <class T>
View<T, 2> matrix(void* data, const Layout& layout, std::int64_t index) {
  View<T, 2> view;
  view.data = static_cast<T*>(data) + index * layout.step;
  view.extent[0] = static_cast<std::int64_t>(layout.columns);
  view.extent[1] = static_cast<std::int64_t>(layout.rows);
  view.stride[0] = layout.leading;
  view.stride[1] = 1;
  return view;
}
template <class T>
View<const T, 2> matrix(const void* data, const Layout& layout, std::int64_t index) {
  const View<T, 2> view = matrix<T>(const_cast<void*>(data), layout, index);
  View<const T, 2> read;
  read.data = view.data;
  for (int i = 0; i < 2; ++i) {
    read.extent[i] = view.extent[i];
    read.stride[i] = view.stride[i];
  }
  return read;
}

// Factor of the columns [begin, begin + depth) of output (i, j).
struct Scaling {
  const float *a = nullptr, *b = nullptr;
  std::int64_t tokens, depth, row;
  bool blocks;

  explicit Scaling(const BlasCall& c)
      : a(static_cast<const float*>(c.operation.a_scales)),
        b(static_cast<const float*>(c.operation.b_scales)),
        tokens(static_cast<std::int64_t>(c.d.columns)),
        depth(static_cast<std::int64_t>(c.a.rows)),
        row((depth / kScaleBlock + (depth % kScaleBlock != 0) + 3) / 4 * 4),
        blocks(c.operation.a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F) {
    if (blocks) depth = kScaleBlock;
  }
  float of(std::int64_t i, std::int64_t j, std::int64_t begin) const {
    if (a == nullptr) return 1.f;
    if (!blocks) return b[i] * a[j];
    const std::int64_t block = begin / kScaleBlock;
    return b[block * tokens + i] * a[j / kScaleBlock * row + block];
  }
};

template <class Out, class X, class Bias>
void multiply(const BlasCall& c, std::int64_t index) {
  const auto out = matrix<Out>(c.d_data, c.d, index);
  const auto x = matrix<X>(c.b_data, c.b, index), weight = matrix<X>(c.a_data, c.a, index);
  const Bias* const bias = c.operation.epilogue == CUBLASLT_EPILOGUE_BIAS
                               ? static_cast<const Bias*>(c.operation.bias)
                               : nullptr;
  const Scaling scaling(c);
  for (std::int64_t i = 0; i < out.extent[0]; ++i) {
    for (std::int64_t j = 0; j < out.extent[1]; ++j) {
      float sum = bias != nullptr ? static_cast<float>(bias[j]) : 0.f;
      if constexpr (sizeof(X) > 1) {
        for (std::int64_t k = 0; k < x.extent[1]; ++k)
          sum += static_cast<float>(x(i, k)) * static_cast<float>(weight(j, k));
      } else {
        for (std::int64_t begin = 0; begin < x.extent[1]; begin += scaling.depth) {
          const std::int64_t end = std::min(begin + scaling.depth, x.extent[1]);
          float part = 0.f;
          for (std::int64_t k = begin; k < end; ++k)
            part += static_cast<float>(x(i, k)) * static_cast<float>(weight(j, k));
          sum += part * scaling.of(i, j, begin);
        }
      }
      out(i, j) = Out(sum);
    }
  }
}

template <class F>
void dispatch(cudaDataType_t type, const F& f) {
  if (type == CUDA_R_32F) return f(quire::Type<float>());
  if (type == CUDA_R_16F) return f(quire::Type<__half>());
  f(quire::Type<__nv_bfloat16>());
}

}  // namespace

cublasStatus_t check_form(const BlasCall& c) {
  const Operation& o = c.operation;
  for (const Layout* m : {&c.a, &c.b, &c.d})
    if (m->leading < static_cast<std::int64_t>(m->rows) || m->batch != c.d.batch)
      return CUBLAS_STATUS_INVALID_VALUE;
  if (o.a_operation != CUBLAS_OP_T || c.a.rows != c.b.rows || c.a.columns != c.d.rows ||
      c.b.columns != c.d.columns)
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool is_fp8 = c.a.type == CUDA_R_8F_E4M3;
  if (c.b.type != c.a.type || !is_float(c.d.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!is_fp8 && c.d.type != c.a.type && c.d.type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (is_fp8 && !has_fp8_form(c)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const cudaDataType_t bias = is_fp8 && c.d.type == CUDA_R_32F ? CUDA_R_16BF : c.d.type;
  if (o.epilogue == CUBLASLT_EPILOGUE_BIAS && (o.bias_type != bias || o.bias == nullptr))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

void multiply(const BlasCall& c, std::int64_t index) {
  dispatch(c.d.type, [&]<class Out>(quire::Type<Out>) {
    using Fp8Bias = std::conditional_t<std::is_same_v<Out, float>, __nv_bfloat16, Out>;
    if (c.a.type == CUDA_R_8F_E4M3) return multiply<Out, __nv_fp8_e4m3, Fp8Bias>(c, index);
    dispatch(c.a.type, [&]<class X>(quire::Type<X>) { multiply<Out, X, Out>(c, index); });
  });
}

}  // namespace emulation
