#include "tests/perf/cpu_limits.h"

#include <algorithm>
#include <cstdio>

namespace quire::perf {

CpuLimits::CpuLimits(const CpuOptions& options)
    : threads_(options.threads > 0 ? options.threads : available_cores()),
      isa_(std::min(options.best_isa, detect_cpu_isa())),
      limits_(probe_machine(threads_, isa_)) {}

void CpuLimits::print() const {
  std::printf("limits: %d threads, %s: DRAM read %.1f GB/s, bf16 %.0f GFLOP/s, f32 %.0f GFLOP/s, int8 %.0f GOP/s\n",
              threads_, name_of(isa_), limits_.read_gb, limits_.bf16_gflops, limits_.f32_gflops,
              limits_.int8_gops);
}

void CpuLimits::print_again() const {
  CpuLimits again = *this;
  again.limits_ = probe_machine(threads_, isa_);
  again.print();
}

}  // namespace quire::perf
