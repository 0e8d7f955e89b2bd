// Microscaling FP4 (OCP MX 1.0): 32 e2m1 values share a power of two.

#include "cpu/kernels/isa.h"

namespace quire::cpu::QUIRE_CPU_ISA {
namespace {

inline constexpr float kE2m1[16] = {0.f,  0.5f,  1.f,  1.5f,  2.f,  3.f,  4.f,  6.f,
                                    -0.f, -0.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};

// 2^(exponent − 127); 0 would be a subnormal, 255 is NaN in the format.
inline float power_of_two(std::uint8_t exponent) {
  if (exponent == 0) return 5.877471754e-39f;
  if (exponent == 255) return __builtin_nanf("");
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(exponent) << 23);
}

}  // namespace

void unpack_mxfp4(const std::uint8_t* data, const std::uint8_t* scales, Index groups, Float type,
                  void* out) {
  with_float(type, [&]<class T>(Tag<T>) {
    T* to = static_cast<T*>(out);
    for (Index g = 0; g < groups; ++g, data += 16, to += 32) {
      const float scale = power_of_two(scales[g]);
      float table[16], values[32];
      for (int i = 0; i < 16; ++i) table[i] = kE2m1[i] * scale;
      for (int i = 0; i < 16; ++i) {
        values[2 * i] = table[data[i] & 15];
        values[2 * i + 1] = table[data[i] >> 4];
      }
      for_lanes(32, [&](Index i, int n) { store(to + i, load(values + i, n), n); });
    }
  });
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
