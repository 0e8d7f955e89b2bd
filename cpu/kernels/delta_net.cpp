// Gated delta rule, token by token. A block of value columns depends on no other, so one block of
// the state stays in the L1 cache while all tokens pass. A chunked form would do as many
// multiplications in float32; this one gives the same bits however the tokens are cut into steps.

#include "cpu/kernels/isa.h"

extern "C" float expf(float);
extern "C" float log1pf(float);

namespace quire::cpu::QUIRE_CPU_ISA {
namespace {

inline constexpr Index kMaxKeyDim = 256;
inline constexpr float kNormEps = 1e-6f;

float softplus(float x) { return x > 20.f ? x : log1pf(expf(x)); }

// x / sqrt(Σ x² + eps) · factor, padded with one zero so that pairs may be read.
template <class T>
void normalize(const T* x, Index dim, float factor, float* out) {
  Vec squares = zero();
  for_lanes(dim, [&](Index i, int n) {
    const Vec v = load(x + i, n);
    squares = fma(v, v, squares);
  });
  const Vec scale = splat(factor / __builtin_sqrtf(sum(squares) + kNormEps));
  for_lanes(dim, [&](Index i, int n) { store(out + i, load(x + i, n) * scale, n); });
}

struct Gates {
  float decay, beta;
};

Gates gates_at(const DeltaArgs& args, Index token, Index head) {
  float a = 0.f, b = 0.f;
  with_float(args.a.type, [&]<class T>(Tag<T>) {
    a = sum(load_some(row<T>(args.a, token) + head, 1));
    b = sum(load_some(row<T>(args.b, token) + head, 1));
  });
  return {expf(-expf(args.a_log[head]) * softplus(a + args.dt_bias[head])), 1.f / (1.f + expf(-b))};
}

// Value columns [column, column + kVectors · kLanes) of one head; lanes: of the last vector.
template <int kVectors>
class Columns {
 public:
  static constexpr int kWidth = kVectors * kLanes;

  Columns(const DeltaArgs& args, Index head, Index column, int lanes)
      : args_(args), head_(head), column_(column), lanes_(lanes) {}

  // A request's only token: straight from the block that is read to the one that is written.
  template <class T, class S>
  void run_one(Index request) {
    const Index token = args_.query_start[request], read = args_.state_read[request];
    const Index write = args_.state_write[request];
    const auto state_at = [&](Index i, int v) {
      return read < 0 ? zero() : load(state<S>(read) + i * args_.value_dim + v * kLanes, lanes(v));
    };
    read_keys<T>(token, current_);
    for (int v = 0; v < kVectors; ++v) recalled_[v] = zero();
    for (Index i = 0; i < args_.key_dim; ++i) {
      const Vec k = splat(current_->k[i]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) recalled_[v] = fma(k, state_at(i, v), recalled_[v]);
    }
    const Gates gates = gates_at(args_, token, head_);
    Vec delta[kVectors], out[kVectors];
    start_token<T>(token, gates, delta, out);
    const Vec decay = splat(gates.decay);
    for (Index i = 0; i < args_.key_dim; ++i) {
      const Vec k = splat(current_->k[i]), q = splat(current_->q[i]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const Vec s = fma(k, delta[v], decay * state_at(i, v));
        out[v] = fma(q, s, out[v]);
        if (write < 0) continue;
        store(state<S>(write) + i * args_.value_dim + v * kLanes, s, lanes(v));
      }
    }
    write_out<T>(token, out);
  }

  template <class T, class S>
  void run(Index request) {
    const Index first = args_.query_start[request], last = args_.query_start[request + 1];
    read_state<S>(args_.state_read[request]);
    read_keys<T>(first, current_);
    recall(current_);
    for (Index t = first; t < last; ++t) {
      if (t + 1 < last) read_keys<T>(t + 1, next_);
      step<T>(t, t + 1 < last);
      Keys* const swap = current_;
      current_ = next_;
      next_ = swap;
      if (args_.token_states == nullptr || args_.token_states[t] < 0) continue;
      write_state<S>(args_.token_states[t]);
      if (t + 1 == last) continue;
      read_state<S>(args_.token_states[t]);
      recall(current_);
    }
    if (args_.state_write[request] >= 0) write_state<S>(args_.state_write[request]);
  }

 private:
  struct Keys {
    float q[kMaxKeyDim], k[kMaxKeyDim];
  };

  int lanes(int v) const { return v + 1 == kVectors ? lanes_ : kLanes; }
  template <class S>
  S* state(Index block) const {
    return static_cast<S*>(args_.state) + block * args_.state_stride +
           head_ * args_.state_head_stride + column_;
  }

  template <class S>
  void read_state(Index block) {
    for (Index i = 0; i < args_.key_dim; ++i) {
      for (int v = 0; v < kVectors; ++v) {
        const Vec s =
            block < 0 ? zero() : load(state<S>(block) + i * args_.value_dim + v * kLanes, lanes(v));
        store(state_ + i * kWidth + v * kLanes, s);
      }
    }
  }

  template <class S>
  void write_state(Index block) const {
    for (Index i = 0; i < args_.key_dim; ++i) {
      for (int v = 0; v < kVectors; ++v) {
        store(state<S>(block) + i * args_.value_dim + v * kLanes,
              load(state_ + i * kWidth + v * kLanes), lanes(v));
      }
    }
  }

  template <class T>
  void read_keys(Index token, Keys* keys) const {
    const Index key_head = head_ / (args_.value_heads / args_.key_heads);
    const Index at = token * args_.key_heads + key_head;
    normalize(row<T>(args_.q, at), args_.key_dim,
              1.f / __builtin_sqrtf(static_cast<float>(args_.key_dim)), keys->q);
    normalize(row<T>(args_.k, at), args_.key_dim, 1.f, keys->k);
  }

  // recalled_ = Sᵀk of the state as it is.
  void recall(const Keys* keys) {
    Vec acc[kVectors];
    for (int v = 0; v < kVectors; ++v) acc[v] = zero();
    for (Index i = 0; i < args_.key_dim; ++i) {
      const Vec k = splat(keys->k[i]);
      for (int v = 0; v < kVectors; ++v) {
        acc[v] = fma(k, load(state_ + i * kWidth + v * kLanes), acc[v]);
      }
    }
    for (int v = 0; v < kVectors; ++v) recalled_[v] = acc[v];
  }

  // delta = beta · (v − what the decayed state recalls); out = 0.
  template <class T>
  void start_token(Index token, const Gates& gates, Vec* delta, Vec* out) const {
    const Vec decay = splat(gates.decay), beta = splat(gates.beta);
    const T* const value = row<T>(args_.v, token * args_.value_heads + head_) + column_;
    for (int v = 0; v < kVectors; ++v) {
      delta[v] = beta * (load(value + v * kLanes, lanes(v)) - decay * recalled_[v]);
      out[v] = zero();
    }
  }

  template <class T>
  void write_out(Index token, const Vec* out) const {
    const Index at = token * args_.value_heads + head_;
    for (int v = 0; v < kVectors; ++v) {
      const Index column = column_ + v * kLanes;
      if (args_.out.type == Float::f32) {
        store(row<float>(args_.out, at) + column, out[v], lanes(v));
      } else {
        store(row<T>(args_.out, at) + column, out[v], lanes(v));
      }
    }
  }

  // One token; what the next one recalls is summed up in the same pass over the state.
  template <class T>
  void step(Index token, bool has_next) {
    const Gates gates = gates_at(args_, token, head_);
    Vec delta[kVectors], out[kVectors], recalled[kVectors];
    start_token<T>(token, gates, delta, out);
    for (int v = 0; v < kVectors; ++v) recalled[v] = zero();
    const Vec decay = splat(gates.decay);
    const float* const next_k = has_next ? next_->k : current_->k;
    for (Index i = 0; i < args_.key_dim; ++i) {
      const Vec k = splat(current_->k[i]), q = splat(current_->q[i]), n = splat(next_k[i]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        float* const at_state = state_ + i * kWidth + v * kLanes;
        const Vec s = fma(k, delta[v], decay * load(at_state));
        store(at_state, s);
        out[v] = fma(q, s, out[v]);
        recalled[v] = fma(n, s, recalled[v]);
      }
    }
    for (int v = 0; v < kVectors; ++v) recalled_[v] = recalled[v];
    write_out<T>(token, out);
  }

  const DeltaArgs& args_;
  Index head_, column_;
  int lanes_;
  Keys keys_[2];
  Keys* current_ = &keys_[0];
  Keys* next_ = &keys_[1];
  Vec recalled_[kVectors];
  float state_[kMaxKeyDim * kWidth];
};

template <int kVectors>
void run_columns(const DeltaArgs& args, Index request, Index head, Index column, int lanes) {
  with_float(args.q.type, [&]<class T>(Tag<T>) {
    with_float(args.state_type, [&]<class S>(Tag<S>) {
      Columns<kVectors> columns(args, head, column, lanes);
      const Index tokens = args.query_start[request + 1] - args.query_start[request];
      if (tokens == 1) {
        columns.template run_one<T, S>(request);
      } else {
        columns.template run<T, S>(request);
      }
    });
  });
}

// All value columns, kVectors registers at a time while they fill those.
template <int kVectors>
void run_head(const DeltaArgs& args, Index request, Index head) {
  Index c = 0;
  for (; c + kVectors * kLanes <= args.value_dim; c += kVectors * kLanes) {
    run_columns<kVectors>(args, request, head, c, kLanes);
  }
  for (; c < args.value_dim; c += kLanes) {
    run_columns<1>(args, request, head, c, static_cast<int>(min_of(kLanes, args.value_dim - c)));
  }
}

}  // namespace

void delta_rule(const DeltaArgs& args, Index request, Index head) {
  // One token passes the state once, best in long rows; for many, what they pass stays in the L1
  // cache.
  constexpr int kWide = sizeof(Vec) == 64 ? 8 : 4, kNarrow = 2;
  const Index tokens = args.query_start[request + 1] - args.query_start[request];
  if (tokens == 1 && args.value_dim >= kWide * kLanes) {
    run_head<kWide>(args, request, head);
  } else {
    run_head<kNarrow>(args, request, head);
  }
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
