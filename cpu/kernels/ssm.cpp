// Mamba2's scan, token by token: a row of the state stays in registers or the L1 cache while a
// block of tokens passes. The same bits however the tokens are cut into steps.

#include "cpu/kernels/isa.h"

extern "C" float expf(float);
extern "C" float log1pf(float);

namespace quire::cpu::QUIRE_CPU_ISA {
namespace {

inline constexpr Index kTokens = 64;  // per pass over the state
inline constexpr Index kMaxStateDim = 512;

float softplus(float x) { return x > 20.f ? x : log1pf(expf(x)); }

// Of one head and up to kTokens tokens.
struct Steps {
  float decay[kTokens];
  float width[kTokens];  // the discretised dt
};

template <class T>
void read_steps(const ScanLoopArgs& args, Index head, Index first, Index count, Steps* steps) {
  const float rate = -expf(args.a_log[head]);
  for (Index i = 0; i < count; ++i) {
    const float raw = sum(load_some(row<T>(args.dt, first + i) + head, 1));
    const float wide = softplus(raw + args.dt_bias[head]);
    const float low = wide < args.dt_min ? args.dt_min : wide;
    steps->width[i] = low > args.dt_max ? args.dt_max : low;
    steps->decay[i] = expf(rate * steps->width[i]);
  }
}

// state row (N floats) of head dimension p through count tokens.
template <class T>
void scan_row(const ScanLoopArgs& args, Index head, Index p, Index first, Index count,
              const Steps& steps, float* state) {
  const Index group = head / (args.heads / args.groups);
  for (Index i = 0; i < count; ++i) {
    const Index t = first + i;
    const float x = sum(load_some(row<T>(args.x, t * args.heads + head) + p, 1));
    const T* const b = row<T>(args.b, t * args.groups + group);
    const T* const c = row<T>(args.c, t * args.groups + group);
    const Vec decay = splat(steps.decay[i]), input = splat(steps.width[i] * x);
    Vec y = zero();
    for_lanes(args.state_dim, [&](Index k, int n) {
      const Vec s = fma(input, load(b + k, n), decay * load(state + k, n));
      store(state + k, s, n);
      y = fma(load(c + k, n), s, y);
    });
    const Vec out = splat(sum(y) + args.d_skip[head] * x);
    if (args.out.type == Float::f32) {
      store_some(row<float>(args.out, t * args.heads + head) + p, out, 1);
    } else {
      store_some(row<T>(args.out, t * args.heads + head) + p, out, 1);
    }
  }
}

template <class T, class S>
void scan_head(const ScanLoopArgs& args, Index request, Index head) {
  const Index first = args.query_start[request], last = args.query_start[request + 1];
  const Index read = args.state_read[request], write = args.state_write[request];
  const auto state = [&](Index block, Index p) {
    return static_cast<S*>(args.state) + block * args.state_stride + head * args.state_head_stride +
           p * args.state_dim;
  };
  Steps steps;
  float row_state[kMaxStateDim];
  for (Index p = 0; p < args.head_dim; ++p) {
    for_lanes(args.state_dim, [&](Index k, int n) {
      store(row_state + k, read < 0 ? zero() : load(state(read, p) + k, n), n);
    });
    for (Index t = first; t < last; t += kTokens) {
      const Index count = min_of(kTokens, last - t);
      if (p == 0 || last - first > kTokens) read_steps<T>(args, head, t, count, &steps);
      scan_row<T>(args, head, p, t, count, steps, row_state);
    }
    if (write < 0) continue;
    for_lanes(args.state_dim,
              [&](Index k, int n) { store(state(write, p) + k, load(row_state + k, n), n); });
  }
}

}  // namespace

void scan(const ScanLoopArgs& args, Index request, Index head) {
  with_float(args.x.type, [&]<class T>(Tag<T>) {
    with_float(args.state_type, [&]<class S>(Tag<S>) { scan_head<T, S>(args, request, head); });
  });
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
