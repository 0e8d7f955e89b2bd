#pragma once
#include "cpu/cpu_backend.h"
#include "cpu/kernels/kernels.h"

namespace quire {

// The kernels of the best instruction set that the machine has and options allow.
cpu::Kernels choose_kernels(CpuIsa best_allowed);

}  // namespace quire
