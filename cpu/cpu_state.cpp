// Recurrent operators and blocks of state.

#include <cassert>
#include <cstring>
#include <string>

#include "base/error.h"
#include "cpu/operators.h"

namespace quire::cpu {
namespace {

constexpr std::int64_t kMaxConvWidth = 8, kMaxKeyDim = 256;

// The kernels keep a row of this size on their stack.
void check_limit(const char* what, std::int64_t value, std::int64_t limit) {
  if (value <= limit) return;
  throw Failure(ErrorCode::unsupported, std::string(what) + " is " + std::to_string(value) +
                                            ", the CPU backend's limit is " +
                                            std::to_string(limit));
}

const std::int32_t* ints(TensorView v) { return v.as<std::int32_t, 1>().data; }

const std::int32_t* optional_ints(TensorView v) { return v.empty() ? nullptr : ints(v); }

std::int64_t tokens_of(const std::int32_t* query_start, std::int64_t r) {
  return query_start[r + 1] - query_start[r];
}

}  // namespace

void causal_conv(Context& on, const ConvArgs& args) {
  assert(args.x.dtype() == args.out.dtype() && args.weight.contiguous());
  const ConvolutionArgs conv{
      .out = rows_of(args.out),
      .x = rows_of(args.x),
      .weight = args.weight.data(),
      .weight_type = float_of(args.weight.dtype()),
      .bias = args.bias.data(),
      .bias_type = args.bias.empty() ? Float::f32 : float_of(args.bias.dtype()),
      .state = args.state.data(),
      .state_type = float_of(args.state.dtype()),
      .state_stride = args.state.stride(0),
      .state_row_stride = args.state.stride(1),
      .channels = args.x.extent(1),
      .width = args.weight.extent(1),
      .query_start = ints(args.query_start),
      .state_read = ints(args.state_read),
      .state_write = ints(args.state_write),
      .token_states = optional_ints(args.token_states),
      .silu = args.silu};
  check_limit("a convolution's width", conv.width, kMaxConvWidth);
  assert(args.state.extent(1) == conv.width - 1 && args.state.extent(2) == conv.channels);
  constexpr std::int64_t kChannels = 64;  // of a task
  const std::int64_t parts = (conv.channels + kChannels - 1) / kChannels;
  const std::int64_t requests = args.state_read.extent(0);
  const std::int64_t tokens = args.x.extent(0) / std::max<std::int64_t>(requests, 1) + 1;
  on.for_rows(requests * parts, tokens * kChannels * 2, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t r = i / parts, c = i % parts * kChannels;
      if (tokens_of(conv.query_start, r) == 0) continue;
      on.kernels.conv(conv, r, c, std::min(conv.channels, c + kChannels));
    }
  });
}

void gated_delta_rule(Context& on, const DeltaRuleArgs& args) {
  const DeltaArgs delta{.out = rows_of(args.out),
                        .q = rows_of(args.q),
                        .k = rows_of(args.k),
                        .v = rows_of(args.v),
                        .a = rows_of(args.a),
                        .b = rows_of(args.b),
                        .a_log = args.a_log.as<float, 1>().data,
                        .dt_bias = args.dt_bias.as<float, 1>().data,
                        .state = args.state.data(),
                        .state_type = float_of(args.state.dtype()),
                        .state_stride = args.state.stride(0),
                        .state_head_stride = args.state.stride(1),
                        .key_heads = args.q.extent(1),
                        .value_heads = args.v.extent(1),
                        .key_dim = args.q.extent(2),
                        .value_dim = args.v.extent(2),
                        .query_start = ints(args.query_start),
                        .state_read = ints(args.state_read),
                        .state_write = ints(args.state_write),
                        .token_states = optional_ints(args.token_states)};
  check_limit("a delta rule's key dimension", delta.key_dim, kMaxKeyDim);
  assert(delta.value_heads % delta.key_heads == 0);
  assert(args.k.dtype() == args.q.dtype() && args.v.dtype() == args.q.dtype() &&
         args.b.dtype() == args.a.dtype());
  assert(args.out.dtype() == args.q.dtype() || args.out.dtype() == DType::f32);
  assert(args.state.stride(2) == delta.value_dim && args.state.stride(3) == 1);
  const std::int64_t heads = delta.value_heads, requests = args.state_read.extent(0);
  const std::int64_t tokens = args.q.extent(0) / std::max<std::int64_t>(requests, 1) + 1;
  on.for_rows(requests * heads, tokens * delta.key_dim * delta.value_dim / 4,
              [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t i = begin; i < end; ++i) {
                  if (tokens_of(delta.query_start, i / heads) == 0) continue;
                  on.kernels.delta_rule(delta, i / heads, i % heads);
                }
              });
}

void selective_scan(Context& on, const ScanArgs& args) {
  const ScanLoopArgs scan{.out = rows_of(args.out),
                          .x = rows_of(args.x),
                          .b = rows_of(args.b),
                          .c = rows_of(args.c),
                          .dt = rows_of(args.dt),
                          .a_log = args.a_log.as<float, 1>().data,
                          .dt_bias = args.dt_bias.as<float, 1>().data,
                          .d_skip = args.d_skip.as<float, 1>().data,
                          .state = args.state.data(),
                          .state_type = float_of(args.state.dtype()),
                          .state_stride = args.state.stride(0),
                          .state_head_stride = args.state.stride(1),
                          .heads = args.x.extent(1),
                          .groups = args.b.extent(1),
                          .head_dim = args.x.extent(2),
                          .state_dim = args.b.extent(2),
                          .query_start = ints(args.query_start),
                          .state_read = ints(args.state_read),
                          .state_write = ints(args.state_write),
                          .token_states = optional_ints(args.token_states),
                          .dt_min = args.dt_min,
                          .dt_max = args.dt_max};
  assert(scan.heads % scan.groups == 0);
  assert(args.b.dtype() == args.x.dtype() && args.c.dtype() == args.x.dtype() &&
         args.dt.dtype() == args.x.dtype());
  assert(args.out.dtype() == args.x.dtype() || args.out.dtype() == DType::f32);
  assert(args.state.stride(2) == scan.state_dim && args.state.stride(3) == 1);
  const std::int64_t heads = scan.heads, requests = args.state_read.extent(0);
  const std::int64_t tokens = args.x.extent(0) / std::max<std::int64_t>(requests, 1) + 1;
  const std::int64_t floats =
      (scan.head_dim + 2 * kScanTokens) * (scan.state_dim + 16) + 2 * kScanTokens * scan.head_dim;
  const std::size_t scratch_bytes = static_cast<std::size_t>(floats) * sizeof(float);
  on.for_rows(requests * heads, tokens * scan.head_dim * scan.state_dim / 4,
              [&](std::int64_t begin, std::int64_t end) {
                auto* const scratch = static_cast<float*>(thread_scratch(scratch_bytes));
                for (std::int64_t i = begin; i < end; ++i) {
                  if (tokens_of(scan.query_start, i / heads) == 0) continue;
                  on.kernels.scan(scan, i / heads, i % heads, scratch);
                }
              });
}

void copy_blocks(Context& on, TensorView pages, TensorView to, TensorView from) {
  const auto bytes = static_cast<std::size_t>(pages.extent(1));
  const auto page = [&](std::int32_t id) {
    return pages.as<std::uint8_t, 2>().data + id * pages.stride(0);
  };
  on.for_rows(to.extent(0), pages.extent(1) / 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::memcpy(page(ints(to)[i]), page(ints(from)[i]), bytes);
    }
  });
}

void zero_blocks(Context& on, TensorView pages, TensorView ids) {
  const auto bytes = static_cast<std::size_t>(pages.extent(1));
  on.for_rows(ids.extent(0), pages.extent(1) / 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::memset(pages.as<std::uint8_t, 2>().data + ints(ids)[i] * pages.stride(0), 0, bytes);
    }
  });
}

}  // namespace quire::cpu
