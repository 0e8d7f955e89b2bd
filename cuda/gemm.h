#pragma once
// Matrix products by cuBLASLt (gemm_cublaslt.cpp). What it does not document is refused before it
// is asked (gemm.cpp); what it has no algorithm for is computed by an own kernel.

#include <functional>
#include <memory>
#include <string>

#include "backend/device.h"
#include "backend/ops_moe.h"

namespace quire::cuda {

// out[t, n] = Σ_k x[t, k] · x scale · weight[n, k] · weight scale (+ bias[n]).
struct Fp8Product {
  TensorView out;       // [T, N], bf16, f16 or f32
  TensorView x;         // e4m3 [T, K]
  TensorView x_scales;  // f32 [T]; beside fp8_blocks [⌈K / 128⌉, T], and T is a multiple of 4
  Weight weight;        // fp8_rows, fp8_blocks
  TensorView bias;      // [N], optional; bf16, beside f16 outputs f16
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  // out = x · weightᵀ (+ bias); shapes and dtypes as Ops::linear.
  void linear(TensorView out, TensorView x, TensorView weight, TensorView bias, StreamRef stream);
  // out[t, h] = x[t, h] · weight[h]ᵀ; as Ops::head_linear.
  void head_linear(TensorView out, TensorView x, TensorView weight, StreamRef stream);
  // False, with nothing done: the library has no such product, and the caller has another.
  [[nodiscard]] bool fp8_linear(const Fp8Product& product, StreamRef stream);

  // Are there products of fp8 with a scale for each row and column?
  virtual bool has_fp8() const = 0;

  // As Ops::begin_choosing().
  virtual void begin_choosing() = 0;
  virtual void end_choosing() = 0;

 private:
  // False, with nothing queued: refused.
  virtual bool multiply(TensorView out, TensorView x, TensorView weight, TensorView bias,
                        StreamRef stream) = 0;
  virtual bool multiply_heads(TensorView out, TensorView x, TensorView weight,
                              StreamRef stream) = 0;
  virtual bool multiply_fp8(const Fp8Product& product, StreamRef stream) = 0;
};

struct GemmOptions {
  void* workspace;                                      // kGemmWorkspaceBytes (cuda/cuda_traits.h)
  std::string choices_folder = {};                      // of gemm_choices.h, empty: none is kept
  std::function<void(const std::string&)> report = {};  // sentences for a log, optional
  double choosing_seconds = 0;                          // of a start, at most
};

// Why no matrix product can be made (its library is missing or too old), in one sentence; empty
// when it can.
std::string gemm_unavailable();
// The workspace outlives it.
std::unique_ptr<Gemm> make_gemm(const GemmOptions& options);

}  // namespace quire::cuda
