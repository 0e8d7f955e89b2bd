// RMS norms: plain, after a residual sum, with a gate before or after. Memory bound.

#include "cpu/kernels/isa.h"

namespace quire::cpu::QUIRE_CPU_ISA {
namespace {

float inverse_rms(Vec squares, Index width, float eps) {
  return 1.f / __builtin_sqrtf(sum(squares) / static_cast<float>(width) + eps);
}

// One row; pre(i, n) is what is normalized, post(i, n) what the result is multiplied by.
template <class T, class Pre, class Post>
void norm_row(T* out, Index width, float eps, Pre&& pre, Post&& post) {
  Vec squares = zero();
  for_lanes(width, [&](Index i, int n) {
    const Vec x = pre(i, n);
    squares = fma(x, x, squares);
  });
  const Vec factor = splat(inverse_rms(squares, width, eps));
  for_lanes(width, [&](Index i, int n) { store(out + i, pre(i, n) * factor * post(i, n), n); });
}

template <class W>
const W* weight_of(const NormArgs& args, Index r) {
  return static_cast<const W*>(args.weight) + r % args.weight_rows * args.width;
}

// T: of out; X and R, of x and the residual: T or float.
template <class T, class X, class W>
void norm_rows(const NormArgs& args, Index begin, Index end) {
  const Vec offset = splat(args.weight_offset);
  for (Index r = begin; r < end; ++r) {
    const X* const x = row<X>(args.x, r);
    const W* const weight = weight_of<W>(args, r);
    norm_row(
        row<T>(args.out, r), args.width, args.eps, [&](Index i, int n) { return load(x + i, n); },
        [&](Index i, int n) { return load(weight + i, n) + offset; });
  }
}

template <class T, class X, class R, class W>
void add_norm_rows(const NormArgs& args, Index begin, Index end) {
  const Vec offset = splat(args.weight_offset);
  for (Index r = begin; r < end; ++r) {
    const X* const x = row<X>(args.x, r);
    R* const residual = row<R>(args.residual, r);
    const W* const weight = weight_of<W>(args, r);
    for_lanes(args.width, [&](Index i, int n) {
      store(residual + i, load(residual + i, n) + load(x + i, n), n);
    });
    norm_row(
        row<T>(args.out, r), args.width, args.eps,
        [&](Index i, int n) { return load(residual + i, n); },
        [&](Index i, int n) { return load(weight + i, n) + offset; });
  }
}

template <class T, class X, class W>
void gated_norm_rows(const NormArgs& args, Index begin, Index end) {
  for (Index r = begin; r < end; ++r) {
    T* const out = row<T>(args.out, r);
    const X* const x = row<X>(args.x, r);
    const T* const gate = row<T>(args.gate, r);
    const W* const weight = weight_of<W>(args, r);
    if (args.norm_first) {
      norm_row(
          out, args.width, args.eps, [&](Index i, int n) { return load(x + i, n); },
          [&](Index i, int n) { return load(weight + i, n) * silu(load(gate + i, n)); });
    } else {
      norm_row(
          out, args.width, args.eps,
          [&](Index i, int n) { return load(x + i, n) * silu(load(gate + i, n)); },
          [&](Index i, int n) { return load(weight + i, n); });
    }
  }
}

template <class T, class F>
void with_float_or(Tag<T> own, Float type, F&& f) {
  if (type == Float::f32) {
    f(Tag<float>{});
  } else {
    f(own);
  }
}

}  // namespace

void norm(const NormArgs& args, Index begin, Index end) {
  with_float(args.out.type, [&]<class T>(Tag<T> own) {
    with_float(args.weight_type, [&]<class W>(Tag<W>) {
      with_float_or(own, args.x.type, [&]<class X>(Tag<X>) {
        if (args.gate.data != nullptr) {
          gated_norm_rows<T, X, W>(args, begin, end);
        } else if (args.residual.data == nullptr) {
          norm_rows<T, X, W>(args, begin, end);
        } else {
          with_float_or(own, args.residual.type,
                        [&]<class R>(Tag<R>) { add_norm_rows<T, X, R, W>(args, begin, end); });
        }
      });
    });
  });
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
