#pragma once
// Matrix products: cuBLASLt on a device (gemm_cublaslt.cpp), a plain loop where kernels are
// emulated (tests/cuda_emulation/gemm.cpp). Which of them is the linker's choice. What cuBLASLt
// does not document is refused before either sees it (gemm.cpp), so that the emulation computes
// nothing that a device would not.

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
  void fp8_linear(const Fp8Product& product, StreamRef stream);

  // Are there products of fp8 with a scale for each row and column?
  virtual bool has_fp8() const = 0;

 private:
  virtual void multiply(TensorView out, TensorView x, TensorView weight, TensorView bias,
                        StreamRef stream) = 0;
  virtual void multiply_heads(TensorView out, TensorView x, TensorView weight,
                              StreamRef stream) = 0;
  virtual void multiply_fp8(const Fp8Product& product, StreamRef stream) = 0;
};

// Why no matrix product can be made (its library is missing), in one sentence; empty when it can.
std::string gemm_unavailable();
// workspace: kGemmWorkspaceBytes (cuda/cuda_traits.h) of the device, which outlive it.
std::unique_ptr<Gemm> make_gemm(void* workspace);

}  // namespace quire::cuda
