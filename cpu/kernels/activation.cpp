// Activations, alone or times a second half. Memory bound once exp is vectorised.

#include "cpu/kernels/isa.h"

namespace quire::cpu::QUIRE_CPU_ISA {
namespace {

constexpr float kSqrt2OverPi = 0.7978845608028654f;

// f(x) for one activation, chosen once per call and inlined into the loop.
template <class F>
void with_act(const ActArgs& args, F&& f) {
  switch (args.act) {
    case Act::silu:
      return f([](Vec x) { return silu(x); });
    case Act::gelu_tanh:
      return f([](Vec x) {
        const Vec inner = splat(kSqrt2OverPi) * fma(splat(0.044715f) * x * x, x, x);
        return splat(0.5f) * x * (splat(1.f) + tanh(inner));
      });
    case Act::relu2:
      return f([](Vec x) {
        const Vec positive = max(x, zero());
        return positive * positive;
      });
    case Act::clamped_swiglu:
      return f([limit = splat(args.limit), alpha = splat(args.alpha)](Vec x) {
        const Vec bounded = min(x, limit);
        return bounded * sigmoid(alpha * bounded);
      });
    case Act::tanh_cap:
      return f([cap = splat(args.limit)](Vec x) { return cap * tanh(x / cap); });
  }
}

}  // namespace

void activation(const ActArgs& args, Index begin, Index end) {
  const Vec limit = splat(args.limit);
  with_float(args.x.type, [&]<class T>(Tag<T>) {
    with_act(args, [&](auto act) {
      for (Index r = begin; r < end; ++r) {
        T* const out = row<T>(args.out, r);
        const T* const x = row<T>(args.x, r);
        if (args.up.data == nullptr) {
          for_lanes(args.width, [&](Index i, int n) { store(out + i, act(load(x + i, n)), n); });
          continue;
        }
        const T* const up = row<T>(args.up, r);
        const bool clamped = args.act == Act::clamped_swiglu;
        for_lanes(args.width, [&](Index i, int n) {
          Vec u = load(up + i, n);
          if (clamped) u = max(min(u, limit), -limit) + splat(1.f);
          store(out + i, act(load(x + i, n)) * u, n);
        });
      }
    });
  });
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
