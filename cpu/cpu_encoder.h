#pragma once
// Encoders' operators on CPU threads.

#include "backend/encoder_ops.h"
#include "cpu/context.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels/encoder_kernels.h"

namespace quire::cpu {

// Of the best instruction set that the machine has and options allow.
const EncoderKernels& choose_encoder_kernels(CpuIsa best_allowed);

void layer_norm(Context& on, const EncoderKernels& kernels, TensorView out, TensorView x,
                TensorView weight, TensorView bias, float eps);
void gelu(Context& on, const EncoderKernels& kernels, TensorView x);
void encoder_attention(Context& on, const EncoderKernels& kernels,
                       const EncoderAttentionArgs& args);

}  // namespace quire::cpu
