#pragma once
// What this machine can do at most, by probes that take about a second: bytes read from memory and
// copied, and multiplications in registers, with as many threads as asked for.

#include "cpu/cpu_backend.h"

namespace quire {

struct MachineLimits {
  double read_gb = 0;  // GB/s
  double copy_gb = 0;  // GB/s of what is copied: as much is read as is written
  // 10⁹ operations a second, a multiplication and an addition counted as two; 0: not probed here.
  double bf16_gflops = 0, f32_gflops = 0, int8_gops = 0;
};

// Measures what the machine reaches with instructions up to `best_isa`: the best of several passes.
MachineLimits probe_machine(int threads, CpuIsa best_isa = CpuIsa::amx_bf16);

}  // namespace quire
