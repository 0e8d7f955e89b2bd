// Rotary embedding, in place. Memory bound.

#include "cpu/kernels/isa.h"

namespace quire::cpu::QUIRE_CPU_ISA {
namespace {

template <class T>
void rotate_halves(T* x, const float* cos, const float* sin, Index half) {
  for_lanes(half, [&](Index i, int n) {
    const Vec a = load(x + i, n), b = load(x + half + i, n);
    const Vec c = load(cos + i, n), s = load(sin + i, n);
    store(x + i, a * c - b * s, n);
    store(x + half + i, b * c + a * s, n);
  });
}

template <class T>
void rotate_pairs(T* x, const float* cos, const float* sin, Index half) {
  for (Index i = 0; i < half; ++i) {
    const float a = sum(load_some(x + 2 * i, 1)), b = sum(load_some(x + 2 * i + 1, 1));
    store_some(x + 2 * i, splat(a * cos[i] - b * sin[i]), 1);
    store_some(x + 2 * i + 1, splat(b * cos[i] + a * sin[i]), 1);
  }
}

}  // namespace

void rope(const RopeArgs& args, Index begin, Index end) {
  const Index half = args.rotary / 2;
  with_float(args.x.type, [&]<class T>(Tag<T>) {
    for (Index r = begin; r < end; ++r) {
      const float* const cos = args.cos_sin + args.positions[r / args.heads] * args.rotary;
      T* const x = row<T>(args.x, r);
      if (args.interleaved) {
        rotate_pairs(x, cos, cos + half, half);
      } else {
        rotate_halves(x, cos, cos + half, half);
      }
    }
  });
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
