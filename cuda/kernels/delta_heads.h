#pragma once
// What launches of the gated delta rule have in common (delta_net.cu, delta_chunks.cuh).

#include "cuda/device/any_view.cuh"
#include "cuda/device/state_steps.cuh"
#include "cuda/kernels/launchers.h"

namespace quire::cuda {
namespace {

constexpr float kNormEps = 1e-6f;

template <class State>
struct DeltaHeads {
  AnyView out, a, b;
  View<State, 4> state;  // [blocks, value_heads, key_dim, value_dim]
  const float *a_log, *dt_bias;
  StateSteps steps;
  int num_requests, heads, heads_per_key, key_dim, value_dim;

  explicit DeltaHeads(const DeltaRuleArgs& args)
      : out(args.out),
        a(args.a),
        b(args.b),
        state(device_view<State, 4>(args.state)),
        a_log(static_cast<const float*>(args.a_log.data())),
        dt_bias(static_cast<const float*>(args.dt_bias.data())),
        steps(args),
        num_requests(static_cast<int>(args.state_read.extent(0))),
        heads(static_cast<int>(args.v.extent(1))),
        heads_per_key(static_cast<int>(args.v.extent(1) / args.q.extent(1))),
        key_dim(static_cast<int>(args.q.extent(2))),
        value_dim(static_cast<int>(args.v.extent(2))) {}

  // Blocks of so many columns of a head's state, of so many requests.
  dim3 grid(int columns, std::int64_t requests) const {
    return dim3(static_cast<unsigned>((value_dim + columns - 1) / columns),
                static_cast<unsigned>(heads), static_cast<unsigned>(requests));
  }
};

}  // namespace
}  // namespace quire::cuda
