// Matrix products by cuBLASLt. Everything is column-major there, so out [T, N] is computed as its
// transpose [N, T] = weight [N, K] · xᵀ, with the weight read transposed and x as it lies. An
// algorithm is chosen once per shape.

#include <cublasLt.h>

#include <map>
#include <tuple>

#include "cuda/gemm.h"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;  // what NVIDIA recommends for Hopper

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
    default:
      throw Failure(ErrorCode::internal,
                    "no matrix product for dtype " + std::string(name_of(dtype)));
  }
}

class Layout {
 public:
  Layout(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t leading) {
    BLAS_CHECK(cublasLtMatrixLayoutCreate(&layout_, blas_type(dtype),
                                          static_cast<std::uint64_t>(rows),
                                          static_cast<std::uint64_t>(columns), leading));
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

struct Shape {
  std::int64_t tokens, n, k, out_leading, x_leading, weight_leading;
  DType out, x, weight;
  bool bias;
  auto operator<=>(const Shape&) const = default;
};

// One shape's descriptors and algorithm.
class Product {
 public:
  Product(cublasLtHandle_t handle, const Shape& s)
      : weight_(s.weight, s.k, s.n, s.weight_leading),
        x_(s.x, s.k, s.tokens, s.x_leading),
        out_(s.out, s.n, s.tokens, s.out_leading) {
    BLAS_CHECK(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    set(CUBLASLT_MATMUL_DESC_TRANSA, transposed);
    if (s.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, blas_type(s.weight));
    }
    choose(handle, s);
  }
  ~Product() { cublasLtMatmulDescDestroy(operation_); }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  void run(cublasLtHandle_t handle, TensorView out, TensorView x, TensorView weight,
           TensorView bias, void* workspace, cudaStream_t stream) {
    const float one = 1.f, zero = 0.f;
    if (!bias.empty())
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias.data()));
    BLAS_CHECK(cublasLtMatmul(handle, operation_, &one, weight.data(), weight_.get(), x.data(),
                              x_.get(), &zero, out.data(), out_.get(), out.data(), out_.get(),
                              &algorithm_, workspace, kWorkspaceBytes, stream));
  }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    BLAS_CHECK(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof value));
  }

  void choose(cublasLtHandle_t handle, const Shape& s) {
    cublasLtMatmulPreference_t preference = nullptr;
    BLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &kWorkspaceBytes, sizeof kWorkspaceBytes);
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

class CublasLtGemm final : public Gemm {
 public:
  explicit CublasLtGemm(Device& device) : workspace_(device.allocate(kWorkspaceBytes)) {
    BLAS_CHECK(cublasLtCreate(&handle_));
  }
  ~CublasLtGemm() override {
    products_.clear();
    cublasLtDestroy(handle_);
  }

  void linear(TensorView out, TensorView x, TensorView weight, TensorView bias,
              StreamRef stream) override {
    if (out.numel() == 0) return;
    const Shape shape{out.extent(0),    out.extent(1), x.extent(1), out.stride(0),  x.stride(0),
                      weight.stride(0), out.dtype(),   x.dtype(),   weight.dtype(), !bias.empty()};
    auto found = products_.find(shape);
    if (found == products_.end()) {
      found = products_.try_emplace(shape, handle_, shape).first;
    }
    found->second.run(handle_, out, x, weight, bias, workspace_.data(), native(stream));
  }

 private:
  cublasLtHandle_t handle_ = nullptr;
  Buffer workspace_;
  std::map<Shape, Product> products_;
};

}  // namespace

std::unique_ptr<Gemm> make_gemm(Device& device) { return std::make_unique<CublasLtGemm>(device); }

}  // namespace quire::cuda
