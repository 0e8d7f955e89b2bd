// The cases of recurrent layers in cuda_ops_perf: of Qwen3-Next's and Nemotron-H's sizes.

#include "tests/perf/cuda_bench.h"

namespace quire::perf {
namespace {

// Requests with so many tokens each, and their states.
struct States {
  std::int64_t requests, tokens;
  TensorView query_start, read, write;

  States(Bench& bench, std::int64_t requests, std::int64_t tokens)
      : requests(requests),
        tokens(tokens),
        read(bench.counted<std::int32_t>(requests)),
        write(read) {
    std::vector<std::int32_t> starts;
    for (std::int64_t r = 0; r <= requests; ++r)
      starts.push_back(static_cast<std::int32_t>(r * tokens));
    query_start = bench.upload(starts, {requests + 1});
  }
  template <class Args>
  void give(Args& args) const {
    args.query_start = query_start;
    args.state_read = read, args.state_write = write;
  }
};

DeltaRuleArgs delta_args(Bench& bench, const States& s) {
  const std::int64_t t = s.requests * s.tokens, heads = bench.size(32, 2), dim = 128;
  DeltaRuleArgs args;
  args.out = bench.zeros(DType::f32, {t, heads, dim});
  args.q = bench.random({t, heads / 2, dim}), args.k = bench.random({t, heads / 2, dim});
  args.v = bench.random({t, heads, dim});
  args.a = bench.random({t, heads}), args.b = bench.random({t, heads});
  args.a_log = args.dt_bias = bench.zeros(DType::f32, {heads});
  args.state = bench.zeros(DType::f32, {s.requests, heads, dim, dim});
  args.max_query_len = static_cast<int>(s.tokens);
  s.give(args);
  return args;
}

ScanArgs scan_args(Bench& bench, const States& s) {
  const std::int64_t t = s.requests * s.tokens, heads = bench.size(128, 2), dim = 64;
  const std::int64_t groups = bench.size(8, 1), state = 128;
  ScanArgs args;
  args.out = bench.zeros(DType::f32, {t, heads, dim});
  args.x = bench.random({t, heads, dim});
  args.b = bench.random({t, groups, state}), args.c = bench.random({t, groups, state});
  args.dt = bench.random({t, heads});
  args.a_log = args.dt_bias = args.d_skip = bench.zeros(DType::f32, {heads});
  args.state = bench.zeros(DType::f32, {s.requests, heads, dim, state});
  args.max_query_len = static_cast<int>(s.tokens);
  s.give(args);
  return args;
}

double bytes_of(const DeltaRuleArgs& a) {
  return static_cast<double>(a.q.bytes() + a.k.bytes() + a.v.bytes() + a.out.bytes());
}
double bytes_of(const ScanArgs& a) {
  return static_cast<double>(a.x.bytes() + a.b.bytes() + a.c.bytes() + a.out.bytes());
}

// A prompt of one request by chunks, as models ask for it, beside these in turn, as where a block has
// little memory, and token by token; and the decode of many, which reads and writes their states.
template <class Args>
void layer(Bench& bench, const std::string& layer_name, Args (*args_of)(Bench&, const States&),
           void (Ops::*run)(const Args&, StreamRef)) {
  const std::string prompt = layer_name + ", a prompt of 8192",
                    decode = layer_name + ", decode of 256";
  const bool compares = bench.begin_ways(prompt);
  if (compares || bench.begin(prompt)) {
    const Args chunks = args_of(bench, States(bench, 1, bench.size(8192, 80)));
    Args tokens = chunks;
    tokens.max_query_len = 0;
    const auto body = [&](const Args& args) {
      return [&] { (bench.ops().*run)(args, bench.stream()); };
    };
    if (compares)
      bench.compare(prompt, {{"by chunks", body(chunks)},
                             {"by chunks in turn", body(chunks), {.chunks_ahead = false}},
                             {"by tokens", body(tokens)}});
    else
      bench.memory_bound(prompt, 0, bytes_of(chunks), body(chunks));
  }
  if (!bench.begin(decode)) return;
  const Args args = args_of(bench, States(bench, bench.size(256, 2), 1));
  bench.memory_bound(decode, 0, bytes_of(args) + 2. * static_cast<double>(args.state.bytes()),
                     [&] { (bench.ops().*run)(args, bench.stream()); });
}

void convolution(Bench& bench, std::int64_t requests, std::int64_t tokens) {
  const std::string name = "causal convolution of 8192 channels, " + std::to_string(requests) +
                           " requests of " + std::to_string(tokens);
  if (!bench.begin(name)) return;
  const States states(bench, bench.size(requests, 1), bench.size(tokens, 5));
  const std::int64_t t = states.requests * states.tokens, channels = bench.size(8192, 64);
  ConvArgs args;
  args.out = bench.zeros(DType::bf16, {t, channels});
  args.x = bench.random({t, channels});
  args.weight = bench.random({channels, 4});
  args.state = bench.random({states.requests, 3, channels});
  states.give(args);
  bench.memory_bound(name, 0, 2. * static_cast<double>(args.x.bytes()),
                     [&] { bench.ops().causal_conv(args, bench.stream()); });
}

void gated_norm(Bench& bench) {
  const std::string name = "gated norm of 32 heads of 128, rows 8192";
  if (!bench.begin(name)) return;
  const std::int64_t rows = bench.size(8192, 4), heads = 32, dim = 128;
  const TensorView x = bench.random({rows, heads, dim}), gate = bench.random({rows, heads, dim}),
                   weight = bench.random({dim}), out = bench.zeros(DType::bf16, {rows, heads, dim});
  bench.memory_bound(name, 0, 3. * static_cast<double>(x.bytes()), [&] {
    bench.ops().gated_rms_norm(out, x, gate, weight, 1e-6f, true, bench.stream());
  });
}

}  // namespace

void state_cases(Bench& bench) {
  layer<DeltaRuleArgs>(bench, "gated delta net", delta_args, &Ops::gated_delta_rule);
  layer<ScanArgs>(bench, "Mamba2", scan_args, &Ops::selective_scan);
  convolution(bench, 1, 8192);
  convolution(bench, 256, 1);
  gated_norm(bench);
}

}  // namespace quire::perf
