// Mamba2's scan, token by token: a few rows of a head's state pass a block of tokens while both are
// in the L1 cache. The same bits however the tokens are cut into steps.

#include "cpu/kernels/isa.h"

extern "C" float expf(float);
extern "C" float log1pf(float);

namespace quire::cpu::QUIRE_CPU_ISA {
namespace {

inline constexpr int kRows = 4;  // of the state at a time: they share b and c

float softplus(float x) { return x > 20.f ? x : log1pf(expf(x)); }

// One head of one request. Rows of N floats are padded with zeros to whole registers.
template <class T>
class HeadScan {
 public:
  HeadScan(const ScanLoopArgs& args, Index request, Index head, float* scratch)
      : args_(args),
        head_(head),
        first_(args.query_start[request]),
        last_(args.query_start[request + 1]),
        padded_((args.state_dim + kLanes - 1) / kLanes * kLanes),
        state_(scratch),
        b_(state_ + args.head_dim * padded_),
        c_(b_ + kScanTokens * padded_),
        x_(c_ + kScanTokens * padded_),
        y_(x_ + kScanTokens * args.head_dim) {}

  template <class S>
  void run(Index read, Index write) {
    read_state<S>(read);
    for (Index t = first_, count = 0; t < last_; t += count) {
      count = tokens_of_pass(t);
      read_tokens(t, count);
      Index p = 0;
      for (; p + kRows <= args_.head_dim; p += kRows) scan_rows<kRows>(p, count);
      for (; p < args_.head_dim; ++p) scan_rows<1>(p, count);
      write_tokens(t, count);
      const Index kept = kept_after(t + count - 1);
      if (kept < 0) continue;
      write_state<S>(kept);
      read_state<S>(kept);
    }
    if (write >= 0) write_state<S>(write);
  }

 private:
  Index kept_after(Index token) const {
    return args_.token_states == nullptr ? -1 : args_.token_states[token];
  }

  // Up to the next token whose state is kept.
  Index tokens_of_pass(Index first) const {
    const Index most = min_of(kScanTokens, last_ - first);
    for (Index i = 0; i < most; ++i) {
      if (kept_after(first + i) >= 0) return i + 1;
    }
    return most;
  }

  template <class S>
  void read_state(Index block) {
    for (Index p = 0; p < args_.head_dim; ++p) {
      for_lanes(args_.state_dim, [&](Index k, int n) {
        store(state_ + p * padded_ + k, block < 0 ? zero() : load(stored<S>(block, p) + k, n));
      });
    }
  }

  template <class S>
  void write_state(Index block) const {
    for (Index p = 0; p < args_.head_dim; ++p) {
      for_lanes(args_.state_dim, [&](Index k, int n) {
        store(stored<S>(block, p) + k, load(state_ + p * padded_ + k), n);
      });
    }
  }

  template <class S>
  S* stored(Index block, Index p) const {
    return static_cast<S*>(args_.state) + block * args_.state_stride +
           head_ * args_.state_head_stride + p * args_.state_dim;
  }

  void read_tokens(Index first, Index count) {
    const Index group = head_ / (args_.heads / args_.groups);
    const float rate = -expf(args_.a_log[head_]);
    for (Index i = 0; i < count; ++i) {
      const Index t = first + i;
      const float raw = sum(load_some(row<T>(args_.dt, t) + head_, 1)) + args_.dt_bias[head_];
      const float wide = softplus(raw), low = wide < args_.dt_min ? args_.dt_min : wide;
      width_[i] = low > args_.dt_max ? args_.dt_max : low;
      decay_[i] = expf(rate * width_[i]);
      const T* const b = row<T>(args_.b, t * args_.groups + group);
      const T* const c = row<T>(args_.c, t * args_.groups + group);
      for_lanes(args_.state_dim, [&](Index k, int n) {
        store(b_ + i * padded_ + k, load(b + k, n));
        store(c_ + i * padded_ + k, load(c + k, n));
      });
      const T* const x = row<T>(args_.x, t * args_.heads + head_);
      for_lanes(args_.head_dim,
                [&](Index p, int n) { store(x_ + i * args_.head_dim + p, load(x + p, n), n); });
    }
  }

  // State rows [p, p + kCount) through the block's tokens.
  template <int kCount>
  void scan_rows(Index p, Index count) {
    float* const state = state_ + p * padded_;
    for (Index i = 0; i < count; ++i) {
      const float* const b = b_ + i * padded_;
      const float* const c = c_ + i * padded_;
      const float* const x = x_ + i * args_.head_dim + p;
      const Vec decay = splat(decay_[i]);
      Vec input[kCount], y[kCount];
#pragma GCC unroll 4
      for (int r = 0; r < kCount; ++r) {
        input[r] = splat(width_[i] * x[r]);
        y[r] = zero();
      }
      for (Index k = 0; k < padded_; k += kLanes) {
        const Vec bs = load(b + k), cs = load(c + k);
#pragma GCC unroll 4
        for (int r = 0; r < kCount; ++r) {
          const Vec s = fma(input[r], bs, decay * load(state + r * padded_ + k));
          store(state + r * padded_ + k, s);
          y[r] = fma(cs, s, y[r]);
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < kCount; ++r) {
        y_[i * args_.head_dim + p + r] = sum(y[r]) + args_.d_skip[head_] * x[r];
      }
    }
  }

  void write_tokens(Index first, Index count) const {
    const auto write = [&]<class O>(Tag<O>) {
      for (Index i = 0; i < count; ++i) {
        O* const out = row<O>(args_.out, (first + i) * args_.heads + head_);
        for_lanes(args_.head_dim,
                  [&](Index p, int n) { store(out + p, load(y_ + i * args_.head_dim + p, n), n); });
      }
    };
    if (args_.out.type == Float::f32) {
      write(Tag<float>{});
    } else {
      write(Tag<T>{});
    }
  }

  const ScanLoopArgs& args_;
  Index head_, first_, last_, padded_;
  float* state_;  // [head_dim, padded]
  float* b_;      // [kScanTokens, padded]
  float* c_;
  float* x_;  // [kScanTokens, head_dim]
  float* y_;
  float decay_[kScanTokens];
  float width_[kScanTokens];  // the discretised dt
};

}  // namespace

void scan(const ScanLoopArgs& args, Index request, Index head, float* scratch) {
  const Index read = args.state_read[request], write = args.state_write[request];
  with_float(args.x.type, [&]<class T>(Tag<T>) {
    with_float(args.state_type, [&]<class S>(Tag<S>) {
      HeadScan<T>(args, request, head, scratch).template run<S>(read, write);
    });
  });
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
