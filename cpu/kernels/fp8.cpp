// e4m3 weights to the floats that products take.

#include "cpu/kernels/isa.h"

namespace quire::cpu::QUIRE_CPU_ISA {

void unpack_fp8(const E4m3* codes, Index count, float scale, Float type, void* out) {
  with_float(type, [&]<class T>(Tag<T>) {
    T* const to = static_cast<T*>(out);
    for_lanes(count, [&](Index i, int n) { store(to + i, load(codes + i, n) * splat(scale), n); });
  });
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
