#pragma once
// What launches of Mamba2's scan have in common (ssm.cu, scan_chunks.cu).

#include "cuda/device/any_view.cuh"
#include "cuda/device/softplus.cuh"
#include "cuda/device/state_steps.cuh"
#include "cuda/kernels/launchers.h"

namespace quire::cuda {
namespace {

template <class State>
struct ScanHeads {
  AnyView out, dt;
  View<State, 4> state;  // [blocks, heads, head_dim, state_dim]
  const float *a_log, *dt_bias, *d_skip;
  StateSteps steps;
  int num_requests, heads, heads_per_group, head_dim, state_dim;
  float dt_min, dt_max;

  explicit ScanHeads(const ScanArgs& args)
      : out(args.out),
        dt(args.dt),
        state(device_view<State, 4>(args.state)),
        a_log(static_cast<const float*>(args.a_log.data())),
        dt_bias(static_cast<const float*>(args.dt_bias.data())),
        d_skip(static_cast<const float*>(args.d_skip.data())),
        steps(args),
        num_requests(static_cast<int>(args.state_read.extent(0))),
        heads(static_cast<int>(args.x.extent(1))),
        heads_per_group(static_cast<int>(args.x.extent(1) / args.b.extent(1))),
        head_dim(static_cast<int>(args.x.extent(2))),
        state_dim(static_cast<int>(args.b.extent(2))),
        dt_min(args.dt_min),
        dt_max(args.dt_max) {}

  // dt, discretised.
  __device__ __forceinline__ float width(float raw, int head) const {
    return fminf(fmaxf(softplus(raw + dt_bias[head]), dt_min), dt_max);
  }

  // Blocks of so many rows of a head's state, of so many requests.
  dim3 grid(int rows, std::int64_t requests) const {
    return dim3(static_cast<unsigned>((head_dim + rows - 1) / rows), static_cast<unsigned>(heads),
                static_cast<unsigned>(requests));
  }
};

}  // namespace
}  // namespace quire::cuda
