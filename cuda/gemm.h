#pragma once
// Matrix products: cuBLASLt on a device (gemm_cublaslt.cpp), a plain loop where kernels are
// emulated (tests/cuda_emulation/gemm.cpp). Which of them is the linker's choice.

#include <memory>
#include <string>

#include "backend/device.h"

namespace quire::cuda {

class Gemm {
 public:
  virtual ~Gemm() = default;
  // out = x · weightᵀ (+ bias); shapes and dtypes as Ops::linear.
  virtual void linear(TensorView out, TensorView x, TensorView weight, TensorView bias,
                      StreamRef stream) = 0;
  // out[t, h] = x[t, h] · weight[h]ᵀ; as Ops::head_linear.
  virtual void head_linear(TensorView out, TensorView x, TensorView weight, StreamRef stream) = 0;
};

// Why no matrix product can be made (its library is missing), in one sentence; empty when it can.
std::string gemm_unavailable();
// workspace: kGemmWorkspaceBytes (cuda/cuda_traits.h) of the device, which outlive it.
std::unique_ptr<Gemm> make_gemm(void* workspace);

}  // namespace quire::cuda
