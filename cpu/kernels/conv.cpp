// Causal depthwise convolution. Lanes are channels; memory bound.

#include "cpu/kernels/isa.h"

namespace quire::cpu::QUIRE_CPU_ISA {
namespace {

inline constexpr int kMaxWidth = 8;

// Inputs before the step's first token, for channels [c, c + n): the state, or zeros.
template <class S>
Vec past(const ConvolutionArgs& args, Index block, Index slot, Index c, int n) {
  if (block < 0) return zero();
  const S* const state = static_cast<const S*>(args.state) + block * args.state_stride;
  return load(state + slot * args.state_row_stride + c, n);
}

// The last width − 1 inputs into a block.
template <class S>
void keep(const ConvolutionArgs& args, Index block, Index c, int n, const Vec* window) {
  S* const state = static_cast<S*>(args.state) + block * args.state_stride;
  for (Index w = 0; w + 1 < args.width; ++w) {
    store(state + w * args.state_row_stride + c, window[w], n);
  }
}

template <class T, class S>
void conv_lanes(const ConvolutionArgs& args, Index request, Index c, int n, const Vec* weight,
                Vec bias) {
  const Index first = args.query_start[request], last = args.query_start[request + 1];
  const Index read = args.state_read[request], write = args.state_write[request];
  const Index width = args.width;
  Vec window[kMaxWidth];  // the last width − 1 inputs, then the current one
  for (Index w = 0; w + 1 < width; ++w) window[w] = past<S>(args, read, w, c, n);
  for (Index t = first; t < last; ++t) {
    window[width - 1] = load(row<T>(args.x, t) + c, n);
    Vec y = bias;
    for (Index w = 0; w < width; ++w) y = fma(weight[w], window[w], y);
    store(row<T>(args.out, t) + c, args.silu ? silu(y) : y, n);
    for (Index w = 0; w + 1 < width; ++w) window[w] = window[w + 1];
    if (args.token_states == nullptr || args.token_states[t] < 0) continue;
    const Index kept = args.token_states[t];
    keep<S>(args, kept, c, n, window);
    for (Index w = 0; w + 1 < width; ++w) window[w] = past<S>(args, kept, w, c, n);
  }
  if (write >= 0) keep<S>(args, write, c, n, window);
}

// Weights are [C, width]: column w for channels [c, c + n).
template <class W>
Vec weight_column(const ConvolutionArgs& args, Index c, int n, Index w) {
  W lanes[kLanes] = {};
  for (int i = 0; i < n; ++i) {
    lanes[i] = static_cast<const W*>(args.weight)[(c + i) * args.width + w];
  }
  return load(lanes);
}

}  // namespace

void conv(const ConvolutionArgs& args, Index request, Index begin, Index end) {
  for (Index c = begin; c < end; c += kLanes) {
    const int n = static_cast<int>(min_of(kLanes, end - c));
    Vec weight[kMaxWidth];
    with_float(args.weight_type, [&]<class W>(Tag<W>) {
      for (Index w = 0; w < args.width; ++w) weight[w] = weight_column<W>(args, c, n, w);
    });
    Vec bias = zero();
    if (args.bias != nullptr) {
      with_float(args.bias_type,
                 [&]<class B>(Tag<B>) { bias = load(static_cast<const B*>(args.bias) + c, n); });
    }
    with_float(args.x.type, [&]<class T>(Tag<T>) {
      with_float(args.state_type,
                 [&]<class S>(Tag<S>) { conv_lanes<T, S>(args, request, c, n, weight, bias); });
    });
  }
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
