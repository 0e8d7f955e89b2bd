// Row-wise kernels bound by memory: copies, sums, gates, activations.

#include "cpu/kernels/isa.h"

namespace quire::cpu::QUIRE_CPU_ISA {

void copy_rows(const Rows& out, const Rows& x, std::int64_t width, std::int64_t begin,
               std::int64_t end) {
  with_float(out.type, [&]<class O>(Tag<O>) {
    with_float(x.type, [&]<class X>(Tag<X>) {
      for (std::int64_t r = begin; r < end; ++r) {
        O* const to = row<O>(out, r);
        const X* const from = row<X>(x, r);
        for_lanes(width, [&](std::int64_t i, int n) { store(to + i, load(from + i, n), n); });
      }
    });
  });
}

void quantize_rows(const Rows& out, const Rows& x, float scale, std::int64_t width,
                   std::int64_t begin, std::int64_t end) {
  with_float(x.type, [&]<class X>(Tag<X>) {
    for (std::int64_t r = begin; r < end; ++r) {
      E4m3* const to = row<E4m3>(out, r);
      const X* const from = row<X>(x, r);
      for_lanes(width,
                [&](std::int64_t i, int n) { store(to + i, load(from + i, n) / splat(scale), n); });
    }
  });
}

namespace {

// out = f(a, b) by elements; a and out have one type.
template <class F>
void map_rows(const BinaryArgs& args, std::int64_t begin, std::int64_t end, F&& f) {
  with_float(args.a.type, [&]<class T>(Tag<T>) {
    with_float(args.b.type, [&]<class B>(Tag<B>) {
      for (std::int64_t r = begin; r < end; ++r) {
        T* const out = row<T>(args.out, r);
        const T* const a = row<T>(args.a, r);
        const B* const b = row<B>(args.b, r);
        const bool one = args.b_width == 1;
        const Vec only = splat(one ? sum(load_some(b, 1)) : 0.f);
        for_lanes(args.width, [&](std::int64_t i, int n) {
          store(out + i, f(load(a + i, n), one ? only : load(b + i, n)), n);
        });
      }
    });
  });
}

}  // namespace

void add(const BinaryArgs& args, std::int64_t begin, std::int64_t end) {
  map_rows(args, begin, end, [](Vec a, Vec b) { return a + b; });
}

void sigmoid_gate(const BinaryArgs& args, std::int64_t begin, std::int64_t end) {
  map_rows(args, begin, end, [](Vec a, Vec b) { return a * sigmoid(b); });
}

void combine(const Rows& out, const float* y, Index width, const std::int32_t* rows,
             const float* weights, Index count) {
  with_float(out.type, [&]<class O>(Tag<O>) {
    O* const to = row<O>(out, 0);
    for_lanes(width, [&](Index i, int n) {
      Vec total = zero();
      for (Index j = 0; j < count; ++j) {
        total = fma(splat(weights[j]), load(y + rows[j] * width + i, n), total);
      }
      store(to + i, total, n);
    });
  });
}

void scale(const BinaryArgs& args, std::int64_t begin, std::int64_t end) {
  with_float(args.a.type, [&]<class T>(Tag<T>) {
    for (std::int64_t r = begin; r < end; ++r) {
      T* const out = row<T>(args.out, r);
      const T* const a = row<T>(args.a, r);
      for_lanes(args.width, [&](std::int64_t i, int n) {
        store(out + i, load(a + i, n) * splat(args.factor), n);
      });
    }
  });
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
