// Passes over one row of logits or scores.

#include "cpu/kernels/isa.h"

namespace quire::cpu::QUIRE_CPU_ISA {

float row_max(const float* x, Index n) {
  const Vec lowest = splat(-__builtin_inff());
  Vec top = lowest;
  Index i = 0;
  for (; i + kLanes <= n; i += kLanes) top = max(top, load(x + i));
  float best = max_lane(top);
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

float row_exp_sum(float* x, Index n, float shift, float factor) {
  const Vec shifts = splat(shift), factors = splat(factor);
  Vec total = zero();
  Index i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec e = exp((load(x + i) - shifts) * factors);
    store(x + i, e);
    total = total + e;
  }
  float rest = sum(total);
  if (i < n) {
    const int left = static_cast<int>(n - i);
    store_some(x + i, exp((load_some(x + i, left) - shifts) * factors), left);
    for (; i < n; ++i) rest += x[i];
  }
  return rest;
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
