// Encoders: layer norm, gelu with erf, and attention in which every query sees every key.

#include "cpu/kernels/encoder_kernels.h"
#include "cpu/kernels/isa.h"

namespace quire::cpu {
namespace QUIRE_CPU_ISA {
namespace {

template <class T, class X, class W>
void norm_rows(const LayerNormArgs& args, Index begin, Index end) {
  const auto* const weight = static_cast<const W*>(args.weight);
  const auto* const bias = static_cast<const W*>(args.bias);
  const auto width = static_cast<float>(args.width);
  for (Index r = begin; r < end; ++r) {
    const X* const x = row<X>(args.x, r);
    T* const out = row<T>(args.out, r);
    Vec total = zero();
    for_lanes(args.width, [&](Index i, int n) { total = total + load(x + i, n); });
    const float mean = sum(total) / width;
    Vec wide = zero();
    float rest = 0.f;
    // Lanes beyond the row's end hold 0, which less the mean is not 0: the last ones go one by one.
    for_lanes(args.width, [&](Index i, int n) {
      if (n == kLanes) {
        const Vec d = load(x + i, n) - splat(mean);
        wide = fma(d, d, wide);
        return;
      }
      for (Index j = i; j < i + n; ++j) {
        const float d = sum(load(x + j, 1)) - mean;
        rest += d * d;
      }
    });
    const Vec factor = splat(1.f / __builtin_sqrtf((sum(wide) + rest) / width + args.eps));
    for_lanes(args.width, [&](Index i, int n) {
      const Vec d = (load(x + i, n) - splat(mean)) * factor;
      store(out + i, fma(d, load(weight + i, n), load(bias + i, n)), n);
    });
  }
}

void layer_norm(const LayerNormArgs& args, Index begin, Index end) {
  with_float(args.out.type, [&]<class T>(Tag<T>) {
    with_float(args.weight_type, [&]<class W>(Tag<W>) {
      if (args.x.type == Float::f32) {
        norm_rows<T, float, W>(args, begin, end);
      } else {
        norm_rows<T, T, W>(args, begin, end);
      }
    });
  });
}

// x · Φ(x), with Φ by erf's formula 7.1.26 of Abramowitz and Stegun: its error is below 2e-7.
inline Vec gelu_of(Vec x) {
  const Vec size = max(x, -x);
  const Vec z = size * splat(0.7071067811865476f);
  const Vec t = splat(1.f) / fma(splat(0.3275911f), z, splat(1.f));
  Vec p = fma(splat(1.061405429f), t, splat(-1.453152027f));
  p = fma(p, t, splat(1.421413741f));
  p = fma(p, t, splat(-0.284496736f));
  p = fma(p, t, splat(0.254829592f));
  return max(x, zero()) - splat(0.5f) * size * p * t * exp(-(z * z));
}

void gelu(const Rows& x, Index width, Index begin, Index end) {
  with_float(x.type, [&]<class T>(Tag<T>) {
    for (Index r = begin; r < end; ++r) {
      T* const at = row<T>(x, r);
      for_lanes(width, [&](Index i, int n) { store(at + i, gelu_of(load(at + i, n)), n); });
    }
  });
}

// One head of one request: keys as columns, values as rows, in f32.
template <class T>
class Head {
 public:
  Head(const EncoderAttentionLoop& args, Index request, Index head, float* scratch)
      : args_(args),
        head_(head),
        first_(args.query_start[request]),
        length_(args.query_start[request + 1] - first_),
        stride_((length_ + 15) / 16 * 16),
        keys_(scratch),
        values_(keys_ + args.head_dim * stride_),
        scores_(values_ + args.head_dim * stride_),
        queries_(scores_ + kEncoderRows * stride_) {
    for (Index t = 0; t < length_; ++t) {
      const T* const key = row<T>(args.k, (first_ + t) * args.heads + head);
      const T* const value = row<T>(args.v, (first_ + t) * args.heads + head);
      for_lanes(args.head_dim, [&](Index d, int n) {
        float lanes[kLanes];
        store(lanes, load(key + d, n));
        for (int i = 0; i < n; ++i) keys_[(d + i) * stride_ + t] = lanes[i];
        store(values_ + t * args.head_dim + d, load(value + d, n), n);
      });
    }
    for (Index d = 0; d < args.head_dim; ++d) {
      for (Index t = length_; t < stride_; ++t) keys_[d * stride_ + t] = 0.f;
    }
  }

  // Queries [begin, begin + kRows).
  template <int kRows>
  void run(Index begin) {
    for (int i = 0; i < kRows; ++i) {
      const T* const query = row<T>(args_.q, (first_ + begin + i) * args_.heads + head_);
      float* const to = queries_ + i * args_.head_dim;
      for_lanes(args_.head_dim, [&](Index d, int n) { store(to + d, load(query + d, n), n); });
    }
    for (Index t = 0; t < stride_; t += kLanes) {
      Vec acc[kRows];
      for (int i = 0; i < kRows; ++i) acc[i] = zero();
      for (Index d = 0; d < args_.head_dim; ++d) {
        const Vec key = load(keys_ + d * stride_ + t);
        for (int i = 0; i < kRows; ++i) acc[i] = fma(splat(queries_[i * args_.head_dim + d]), key, acc[i]);
      }
      for (int i = 0; i < kRows; ++i) store(scores_ + i * stride_ + t, acc[i]);
    }
    for (int i = 0; i < kRows; ++i) weigh(begin + i, scores_ + i * stride_);
  }

 private:
  void weigh(Index query, float* scores) {
    const float top = row_max(scores, length_);
    const float total = row_exp_sum(scores, length_, top, args_.scale);
    with_float(args_.out.type, [&]<class O>(Tag<O>) {
      O* const out = row<O>(args_.out, (first_ + query) * args_.heads + head_);
      for_lanes(args_.head_dim, [&](Index d, int n) {
        Vec acc = zero();
        for (Index t = 0; t < length_; ++t)
          acc = fma(splat(scores[t]), load(values_ + t * args_.head_dim + d, n), acc);
        store(out + d, acc * splat(1.f / total), n);
      });
    });
  }

  const EncoderAttentionLoop& args_;
  Index head_, first_, length_, stride_;
  float* keys_;    // [head_dim, stride]
  float* values_;  // [length, head_dim]
  float* scores_;  // [kEncoderRows, stride]
  float* queries_;  // [kEncoderRows, head_dim]
};

void encoder_attention(const EncoderAttentionLoop& args, Index request, Index head, Index begin,
                       Index end, float* scratch) {
  with_float(args.q.type, [&]<class T>(Tag<T>) {
    Head<T> one(args, request, head, scratch);
    Index query = begin;
    for (; query + kEncoderRows <= end; query += kEncoderRows)
      one.template run<kEncoderRows>(query);
    for (; query < end; ++query) one.template run<1>(query);
  });
}

}  // namespace
}  // namespace QUIRE_CPU_ISA

#define QUIRE_JOIN(a, b) a##b
#define QUIRE_TABLE(isa) QUIRE_JOIN(encoder_kernels_, isa)

const EncoderKernels& QUIRE_TABLE(QUIRE_CPU_ISA)() {
  namespace isa = QUIRE_CPU_ISA;
  static constexpr EncoderKernels kTable = {
      .layer_norm = isa::layer_norm, .gelu = isa::gelu, .attention = isa::encoder_attention};
  return kTable;
}

}  // namespace quire::cpu
