// Causal depthwise convolution. Memory bound. A thread has a channel and slides a window over
// tokens. Decode: over a request's few tokens, from the state and back into it. Prefill: over a
// tile of the step's tokens, whose first inputs are read again; states are then written by a
// second kernel, as their old rows may lie in a block that takes new ones.

#include "cuda/device/activation.cuh"
#include "cuda/device/any_view.cuh"
#include "cuda/device/request_of.cuh"
#include "cuda/device/state_steps.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kChannels = 128;   // of a block
constexpr int kTileTokens = 32;  // of a block in prefill
constexpr int kLargestWidth = 8;

template <class T>
struct ConvParams {
  View<T, 2> out;
  View<const T, 2> x;
  AnyView weight, bias, state;
  StateSteps steps;
  int num_requests, width;
  bool silu;
};

// One channel's taps and the inputs under them; a narrower filter leaves the first ones out.
template <class T, int kWidth>
struct Window {
  const ConvParams<T>& p;
  int channel;
  float tap[kWidth], bias, input[kWidth];

  __device__ Window(const ConvParams<T>& params, int c)
      : p(params), channel(c), bias(p.bias.data == nullptr ? 0.f : p.bias.load(0, 0, c)) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const int w = i - kWidth + p.width;
      tap[i] = w < 0 ? 0.f : p.weight.load(0, c, w);
      input[i] = 0.f;
    }
  }

  // The inputs before token t of a request: its earlier tokens, and before them the state's rows.
  __device__ __forceinline__ void move_to(const StateStep& step, int t) {
#pragma unroll
    for (int i = 0; i + 1 < kWidth; ++i) {
      const int back = kWidth - 1 - i, row = t - back - step.first + p.width - 1;
      if (back >= p.width) continue;
      if (t - back >= step.first) {
        input[i] = static_cast<float>(p.x(t - back, channel));
      } else {
        input[i] = step.read < 0 ? 0.f : p.state.load(step.read, row, channel);
      }
    }
  }

  __device__ __forceinline__ void emit(int t) {
    input[kWidth - 1] = static_cast<float>(p.x(t, channel));
    float y = bias;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (i >= kWidth - p.width) y = fmaf(tap[i], input[i], y);
    }
    p.out(t, channel) = T(p.silu ? activate(Activation::silu, y) : y);
    shift();
  }

  __device__ __forceinline__ void pass(int t) {
    input[kWidth - 1] = static_cast<float>(p.x(t, channel));
    shift();
  }

  // Goes on from what was written.
  __device__ __forceinline__ void keep(int block) {
    if (block < 0) return;
#pragma unroll
    for (int i = 0; i + 1 < kWidth; ++i) {
      const int row = i - kWidth + p.width;
      if (row >= 0) input[i] = p.state.store(block, row, channel, input[i]);
    }
  }

 private:
  __device__ __forceinline__ void shift() {
#pragma unroll
    for (int i = 0; i + 1 < kWidth; ++i) input[i] = input[i + 1];
  }
};

// The first token behind which a state is kept; behind the last of them all are.
template <class T>
__device__ __forceinline__ int first_kept(const ConvParams<T>& p, const StateStep& step) {
  int first = step.last;
  while (first > step.first && p.steps.kept_after(first - 1) >= 0) --first;
  return first;
}

// Grid (channels, requests). Without kOutputs only the state's rows are moved on.
template <class T, int kWidth, bool kOutputs>
__global__ void __launch_bounds__(kChannels)
    conv_request_kernel(const __grid_constant__ ConvParams<T> p) {
  release_next_kernel();
  const int channel = blockIdx.x * kChannels + threadIdx.x;
  const bool is_there = channel < p.x.extent[1];
  Window<T, kWidth> window(p, is_there ? channel : 0);
  await_previous_kernel();
  const StateStep step = p.steps(static_cast<int>(blockIdx.y));
  if (!is_there || step.first == step.last) return;
  const int begin = kOutputs ? step.first : first_kept(p, step);
  window.move_to(step, begin);
  for (int t = begin; t < step.last; ++t) {
    if constexpr (kOutputs) {
      window.emit(t);
    } else {
      window.pass(t);
    }
    window.keep(p.steps.kept_after(t));
  }
  window.keep(step.write);
}

// Grid (channels, tiles of tokens).
template <class T, int kWidth>
__global__ void __launch_bounds__(kChannels)
    conv_tile_kernel(const __grid_constant__ ConvParams<T> p) {
  release_next_kernel();
  const int channel = blockIdx.x * kChannels + threadIdx.x;
  const bool is_there = channel < p.x.extent[1];
  Window<T, kWidth> window(p, is_there ? channel : 0);
  await_previous_kernel();
  const int begin = blockIdx.y * kTileTokens;
  const int end = min(begin + kTileTokens, p.steps.query_start[p.num_requests]);
  if (!is_there || begin >= end) return;
  int request = request_of(p.steps.query_start, p.num_requests, begin);
  StateStep step = p.steps(request);
  window.move_to(step, begin);
  for (int t = begin; t < end; ++t) {
    if (t == step.last) {
      while (step.last <= t) step = p.steps(++request);  // some have no tokens
      window.move_to(step, t);
    }
    window.emit(t);
  }
}

template <class T, int kWidth>
void launch_conv(const ConvParams<T>& p, StreamRef stream) {
  const std::int64_t tokens = p.x.extent[0];
  const auto channels = static_cast<unsigned>((p.x.extent[1] + kChannels - 1) / kChannels);
  const dim3 by_request(channels, static_cast<unsigned>(p.num_requests));
  const dim3 by_tile(channels, static_cast<unsigned>((tokens + kTileTokens - 1) / kTileTokens));
  const auto go = [&](auto kernel, dim3 grid) {
    CUDA_CHECK(launch(kernel, grid, dim3(kChannels), 0, native(stream), p));
  };
  // What is read back rounded has to be what the next outputs are made of.
  const bool rounds = p.steps.token_states != nullptr && size_of(p.state.dtype) < sizeof(T);
  if (tokens < 2 * p.num_requests || rounds)
    return go(conv_request_kernel<T, kWidth, true>, by_request);
  go(conv_tile_kernel<T, kWidth>, by_tile);
  go(conv_request_kernel<T, kWidth, false>, by_request);
}

}  // namespace

void causal_conv(const ConvArgs& args, StreamRef stream) {
  if (args.x.extent(0) == 0) return;
  const std::int64_t width = args.weight.extent(1);
  if (width > kLargestWidth) {
    throw Failure(ErrorCode::unsupported,
                  "a convolution over " + std::to_string(width) + " tokens on CUDA");
  }
  dispatch_device_float(args.x.dtype(), [&]<class T>(Type<T>) {
    const ConvParams<T> p{.out = device_view<T, 2>(args.out),
                          .x = device_view<const T, 2>(args.x),
                          .weight = AnyView(args.weight),
                          .bias = AnyView(args.bias),
                          .state = AnyView(args.state),
                          .steps = StateSteps(args),
                          .num_requests = static_cast<int>(args.state_read.extent(0)),
                          .width = static_cast<int>(width),
                          .silu = args.silu};
    if (width <= 4) {
      launch_conv<T, 4>(p, stream);
    } else {
      launch_conv<T, kLargestWidth>(p, stream);
    }
  });
}

}  // namespace quire::cuda
