// Matrix products by cuBLASLt. Everything is column-major there, so out [T, N] is computed as its
// transpose [N, T] = weight [N, K] · xᵀ, with the weight read transposed and x as it lies. An
// algorithm is chosen once per shape.

#include <bit>
#include <map>
#include <optional>

#include "cuda/cuda_traits.h"
#include "cuda/gemm.h"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/cublaslt.h"

namespace quire::cuda {
namespace {

void check_blas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Failure(ErrorCode::internal, std::string(call) + ": " + cublasLtGetStatusString(status));
}
#define BLAS_CHECK(call) check_blas((call), #call)

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

// How a matrix, or a batch of them, lies in memory; strides in elements.
struct Placed {
  std::int64_t leading, batch_stride;
  std::uint32_t alignment;  // of the first byte, 256 at most
  auto operator<=>(const Placed&) const = default;

  Placed(const TensorView& tensor, std::int64_t row_stride, std::int64_t step)
      : leading(row_stride),
        batch_stride(step),
        alignment(static_cast<std::uint32_t>(
            std::uintptr_t{1} << std::countr_zero(reinterpret_cast<std::uintptr_t>(tensor.data()) |
                                                  std::uintptr_t{256}))) {}
};

class Layout {
 public:
  Layout(DType dtype, std::int64_t rows, std::int64_t columns, const Placed& at,
         std::int32_t batch) {
    BLAS_CHECK(cublasLtMatrixLayoutCreate(&layout_, blas_type(dtype),
                                          static_cast<std::uint64_t>(rows),
                                          static_cast<std::uint64_t>(columns), at.leading));
    if (batch == 1) return;
    BLAS_CHECK(cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                                sizeof batch));
    BLAS_CHECK(cublasLtMatrixLayoutSetAttribute(layout_,
                                                CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &at.batch_stride, sizeof at.batch_stride));
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

struct Shape {
  std::int64_t tokens, n, k;
  Placed out_at, x_at, weight_at;
  DType out, x, weight;
  std::optional<DType> bias;
  std::int32_t batch;
  WeightFormat format = WeightFormat::plain;
  auto operator<=>(const Shape&) const = default;
};

// What a product reads and writes.
struct Operands {
  TensorView out, x, weight, bias;
  TensorView x_scales = {}, weight_scales = {};  // beside fp8
};

#if CUBLAS_VERSION >= 120900
constexpr bool kHasScaleVectors = true;
struct ScaleModes {
  cublasLtMatmulMatrixScale_t weight, x;
};
ScaleModes scale_modes(WeightFormat format) {
  if (format == WeightFormat::fp8_blocks) {
    return {CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F};
  }
  return {CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F};
}
#else
// The toolkit that this is built with has no names for them.
constexpr bool kHasScaleVectors = false;
#endif
constexpr std::size_t kFirstWithScaleVectors = 120900;  // cuBLAS 12.9

bool device_has_fp8() {
  int device = 0, major = 0, minor = 0;
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return kHasScaleVectors && major == 9 && minor == 0 &&
         cublasLtGetVersion() >= kFirstWithScaleVectors;
}

// One shape's descriptors and algorithm.
class Product {
 public:
  Product(cublasLtHandle_t handle, const Shape& s, const Operands& first)
      : weight_(s.weight, s.k, s.n, s.weight_at, s.batch),
        x_(s.x, s.k, s.tokens, s.x_at, s.batch),
        out_(s.out, s.n, s.tokens, s.out_at, s.batch) {
    BLAS_CHECK(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    set(CUBLASLT_MATMUL_DESC_TRANSA, transposed);
    if (s.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, blas_type(*s.bias));
    }
    set_scale_modes(s.format);
    set_pointers(first);  // some algorithms are only offered beside them
    choose(handle, s);
  }
  ~Product() { cublasLtMatmulDescDestroy(operation_); }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  void run(cublasLtHandle_t handle, const Operands& o, void* workspace, cudaStream_t stream) {
    const float one = 1.f, zero = 0.f;
    set_pointers(o);
    BLAS_CHECK(cublasLtMatmul(handle, operation_, &one, o.weight.data(), weight_.get(), o.x.data(),
                              x_.get(), &zero, o.out.data(), out_.get(), o.out.data(), out_.get(),
                              &algorithm_, workspace, kGemmWorkspaceBytes, stream));
  }

 private:
  void set_scale_modes([[maybe_unused]] WeightFormat format) {
#if CUBLAS_VERSION >= 120900
    if (format == WeightFormat::plain) return;
    const ScaleModes modes = scale_modes(format);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, modes.weight);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, modes.x);
#endif
  }

  void set_pointers(const Operands& o) {
    const auto set_pointer = [&](cublasLtMatmulDescAttributes_t attribute, const TensorView& to) {
      if (!to.empty()) set(attribute, static_cast<const void*>(to.data()));
    };
    set_pointer(CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias);
    set_pointer(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, o.weight_scales);
    set_pointer(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, o.x_scales);
  }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    BLAS_CHECK(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof value));
  }

  void choose(cublasLtHandle_t handle, const Shape& s) {
    cublasLtMatmulPreference_t preference = nullptr;
    BLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kGemmWorkspaceBytes);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s.weight_at.alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s.x_at.alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s.out_at.alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s.out_at.alignment);
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, operation_, weight_.get(), x_.get(), out_.get(),
                                       out_.get(), preference, 1, &best, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
      throw Failure(ErrorCode::unsupported,
                    "cuBLASLt has no algorithm for [" + std::to_string(s.tokens) + ", " +
                        std::to_string(s.k) + "] " + std::string(name_of(s.x)) + " x [" +
                        std::to_string(s.n) + ", " + std::to_string(s.k) + "] " +
                        std::string(name_of(s.weight)) + " to " + std::string(name_of(s.out)));
    }
    algorithm_ = best.algo;
  }

  Layout weight_, x_, out_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

std::optional<DType> dtype_of_bias(const TensorView& bias) {
  return bias.empty() ? std::nullopt : std::optional(bias.dtype());
}

class CublasLtGemm final : public Gemm {
 public:
  explicit CublasLtGemm(void* workspace) : workspace_(workspace), has_fp8_(device_has_fp8()) {
    BLAS_CHECK(cublasLtCreate(&handle_));
  }
  ~CublasLtGemm() override {
    products_.clear();
    cublasLtDestroy(handle_);
  }
  bool has_fp8() const override { return has_fp8_; }

 private:
  void multiply(TensorView out, TensorView x, TensorView weight, TensorView bias,
                StreamRef stream) override {
    run(shape_of({out, x, weight, bias}, WeightFormat::plain), {out, x, weight, bias}, stream);
  }
  void multiply_fp8(const Fp8Product& p, StreamRef stream) override {
    const Operands operands{p.out, p.x, p.weight.data, p.bias, p.x_scales, p.weight.scales};
    run(shape_of(operands, p.weight.format), operands, stream);
  }
  void multiply_heads(TensorView out, TensorView x, TensorView weight, StreamRef stream) override {
    run({.tokens = out.extent(0),
         .n = out.extent(2),
         .k = x.extent(2),
         .out_at = {out, out.stride(0), out.stride(1)},
         .x_at = {x, x.stride(0), x.stride(1)},
         .weight_at = {weight, weight.stride(1), weight.stride(0)},
         .out = out.dtype(),
         .x = x.dtype(),
         .weight = weight.dtype(),
         .bias = {},
         .batch = static_cast<std::int32_t>(weight.extent(0))},
        {out, x, weight, {}}, stream);
  }

  static Shape shape_of(const Operands& o, WeightFormat format) {
    return {.tokens = o.out.extent(0),
            .n = o.out.extent(1),
            .k = o.x.extent(1),
            .out_at = {o.out, o.out.stride(0), 0},
            .x_at = {o.x, o.x.stride(0), 0},
            .weight_at = {o.weight, o.weight.stride(0), 0},
            .out = o.out.dtype(),
            .x = o.x.dtype(),
            .weight = o.weight.dtype(),
            .bias = dtype_of_bias(o.bias),
            .batch = 1,
            .format = format};
  }

  void run(const Shape& shape, const Operands& operands, StreamRef stream) {
    auto found = products_.find(shape);
    if (found == products_.end()) {
      found = products_.try_emplace(shape, handle_, shape, operands).first;
    }
    found->second.run(handle_, operands, workspace_, native(stream));
  }

  cublasLtHandle_t handle_ = nullptr;
  void* const workspace_;
  bool has_fp8_;
  std::map<Shape, Product> products_;
};

}  // namespace

std::unique_ptr<Gemm> make_gemm(void* workspace) {
  return std::make_unique<CublasLtGemm>(workspace);
}

}  // namespace quire::cuda
