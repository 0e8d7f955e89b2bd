// Speed of the CUDA operators beside the limits that the same run probes: reads of device memory
// for what is bound by it, cuBLASLt for what is bound by the tensor cores. One JSON object a line.
// --tiny: small shapes, to see that it runs.

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda/cuda_traits.h"
#include "tests/perf/cuda_bench.h"

namespace quire::perf {
namespace {

void decode_linear(Bench& bench, std::int64_t rows, std::int64_t n, std::int64_t k, double goal) {
  const std::int64_t layers = bench.copies(n * k * 2);
  const std::int64_t outs = bench.size(n, 64), ins = bench.size(k, 64);
  const TensorView weights = bench.random({layers, outs, ins}, 0.02f);
  const TensorView x = bench.random({rows, ins}), out = bench.zeros(DType::bf16, {rows, outs});
  const auto measure = [&](const char* name, double wanted, auto& products) {
    const double seconds = device_seconds(bench.stream(), [&] {
      for (std::int64_t l = 0; l < layers; ++l)
        products.linear(out, x, weights.rows(l, l + 1).reshape({outs, ins}), {}, bench.stream());
    });
    bench.memory_bound(name + (", rows " + std::to_string(rows)) + ", " + std::to_string(k) +
                           " to " + std::to_string(n),
                       wanted, static_cast<double>(layers * outs * ins) * 2, seconds);
  };
  measure("linear", goal, bench.ops());
  measure("cuBLASLt alone", 0, bench.gemm());
  measure("cuBLASLt chosen", 0, bench.chosen_gemm());
  bench.forget_tensors();
}

// Gates, ups and their activation: in one product, where few rows have it, beside two operators.
void decode_gated_linear(Bench& bench, std::int64_t rows, std::int64_t gates, std::int64_t k) {
  const std::int64_t layers = bench.copies(2 * gates * k * 2);
  const std::int64_t width = bench.size(gates, 32), ins = bench.size(k, 64);
  const TensorView weights = bench.random({layers, 2 * width, ins}, 0.02f);
  const TensorView x = bench.random({rows, ins}), out = bench.zeros(DType::bf16, {rows, width}),
                   both = bench.zeros(DType::bf16, {rows, 2 * width});
  const auto measure = [&](const char* name, auto&& product) {
    const double seconds = device_seconds(bench.stream(), [&] {
      for (std::int64_t l = 0; l < layers; ++l)
        product(weights.rows(l, l + 1).reshape({2 * width, ins}));
    });
    bench.memory_bound(name + (", rows " + std::to_string(rows)) + ", " + std::to_string(k) +
                           " to " + std::to_string(2 * gates),
                       0.90, static_cast<double>(layers * 2 * width * ins) * 2, seconds);
  };
  measure("gated linear", [&](TensorView weight) {
    bench.ops().fused_linear({.out = out,
                              .x = x,
                              .weight = {.data = weight, .scales = {}},
                              .activation = Activation::silu},
                             bench.stream());
  });
  measure("linear, then silu times up", [&](TensorView weight) {
    bench.ops().linear(both, x, weight, {}, bench.stream());
    bench.ops().gated_activation(out, both, Activation::silu, bench.stream());
  });
  bench.forget_tensors();
}

// A norm before a product and a sum behind it: in the product beside operators of their own.
void decode_normed_linear(Bench& bench, std::int64_t rows, std::int64_t n, std::int64_t k) {
  const std::int64_t layers = bench.copies(n * k * 2);
  const std::int64_t outs = bench.size(n, 64), ins = bench.size(k, 64);
  const TensorView weights = bench.random({layers, outs, ins}, 0.02f);
  const TensorView x = bench.random({rows, ins}), norm = bench.random({ins});
  const TensorView stream = bench.zeros(DType::f32, {rows, ins}),
                   sum = bench.zeros(DType::f32, {rows, outs}),
                   update = bench.zeros(DType::f32, {rows, outs}),
                   out = bench.zeros(DType::bf16, {rows, outs});
  const auto measure = [&](const char* name, auto&& product) {
    const double seconds = device_seconds(bench.stream(), [&] {
      for (std::int64_t l = 0; l < layers; ++l)
        product(weights.rows(l, l + 1).reshape({outs, ins}));
    });
    bench.memory_bound(name + (", rows " + std::to_string(rows)) + ", " + std::to_string(k) +
                           " to " + std::to_string(n),
                       0, static_cast<double>(layers * outs * ins) * 2, seconds);
  };
  measure("norm in the linear", [&](TensorView weight) {
    bench.ops().fused_linear({.out = out,
                              .x = stream,
                              .weight = {.data = weight, .scales = {}},
                              .norm_weight = norm,
                              .norm_eps = 1e-5f},
                             bench.stream());
  });
  measure("norm, then linear", [&](TensorView weight) {
    bench.ops().rms_norm(x, stream, norm, 1e-5f, 0.f, bench.stream());
    bench.ops().linear(out, x, weight, {}, bench.stream());
  });
  measure("linear added", [&](TensorView weight) {
    bench.ops().fused_linear(
        {.out = sum, .x = x, .weight = {.data = weight, .scales = {}}, .adds = true},
        bench.stream());
  });
  measure("linear, then add", [&](TensorView weight) {
    bench.ops().linear(update, x, weight, {}, bench.stream());
    bench.ops().add(sum, sum, update, bench.stream());
  });
  bench.forget_tensors();
}

// Weights in fp8 with a scale for each block of 128 × 128.
void decode_fp8_linear(Bench& bench, std::int64_t rows, std::int64_t n, std::int64_t k,
                       double goal) {
  const std::int64_t layers = bench.copies(n * k), outs = bench.size(n, 128),
                     ins = bench.size(k, 512);
  const TensorView codes = bench.zeros(DType::fp8_e4m3, {layers, outs, ins}),
                   scales = bench.zeros(DType::f32, {outs / kFp8Block, ins / kFp8Block}),
                   x = bench.random({rows, ins}), out = bench.zeros(DType::bf16, {rows, outs});
  const auto weight_of = [&](std::int64_t layer) {
    return Weight{codes.rows(layer, layer + 1).reshape({outs, ins}), scales,
                  WeightFormat::fp8_blocks};
  };
  const auto bytes = static_cast<std::int64_t>(
      bench.ops().traits().linear_workspace_bytes(rows, weight_of(0), DType::bf16));
  const TensorView workspace = bench.zeros(DType::u8, {bytes});
  const double seconds = device_seconds(bench.stream(), [&] {
    for (std::int64_t l = 0; l < layers; ++l)
      bench.ops().quantized_linear(out, x, weight_of(l), {}, workspace, bench.stream());
  });
  bench.memory_bound("linear, fp8 in blocks, rows " + std::to_string(rows) + ", " +
                         std::to_string(k) + " to " + std::to_string(n),
                     goal, static_cast<double>(layers * outs * ins), seconds);
  bench.forget_tensors();
}

// Experts of a prompt in MXFP4, as gpt-oss has them.
void prompt_experts(Bench& bench, std::int64_t tokens) {
  const std::int64_t t = bench.size(tokens, 70), width = bench.size(2880, 64);
  constexpr std::int64_t kExperts = 32, kTopK = 4;
  const std::int64_t experts = bench.size(kExperts, 4);
  const auto weight = [&](std::int64_t rows) {
    return Weight{bench.zeros(DType::u8, {experts, rows, width / 2}),
                  bench.zeros(DType::u8, {experts, rows, width / 32}), WeightFormat::mxfp4};
  };
  std::vector<std::int32_t> ids(static_cast<std::size_t>(t * kTopK));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(experts));
  const auto size = static_cast<int>(width);
  const MoeShape shape{static_cast<int>(experts), kTopK, size, size, true, DType::bf16, false};
  MoeExpertsArgs args;
  args.out = bench.zeros(DType::bf16, {t, width});
  args.x = bench.random({t, width});
  args.ids = bench.upload(ids, {t, kTopK});
  args.weights = bench.upload(std::vector(ids.size(), .25f), {t, kTopK});
  args.gate_up = weight(2 * width), args.down = weight(width);
  args.activation = Activation::clamped_swiglu, args.gated = true;
  args.workspace =
      bench.zeros(DType::u8, {static_cast<std::int64_t>(bench.ops().traits().moe_workspace_bytes(
                                 static_cast<int>(t), shape))});
  const double seconds =
      device_seconds(bench.stream(), [&] { bench.ops().moe_experts(args, bench.stream()); });
  bench.compute_bound("experts MXFP4, a prompt of " + std::to_string(tokens),
                      2. * 3 * static_cast<double>(t * kTopK * width * width), seconds);
  bench.forget_tensors();
}

void row_operators(Bench& bench) {
  const std::int64_t t = bench.size(8192, 4), h = bench.size(4096, 64),
                     inner = bench.size(14336, 64);
  const auto measure = [&](const char* name, double bytes, const std::function<void()>& body) {
    bench.memory_bound(name, 0.90, bytes, device_seconds(bench.stream(), body));
    bench.forget_tensors();
  };
  const auto rows = static_cast<double>(t), width = static_cast<double>(h);
  {
    const TensorView x = bench.random({t, h}), out = bench.zeros(DType::bf16, {t, h}),
                     weight = bench.random({h});
    measure("rms_norm, bf16", rows * width * 4,
            [&] { bench.ops().rms_norm(out, x, weight, 1e-6f, 0.f, bench.stream()); });
  }
  {
    const TensorView x = bench.random({t, h}), residual = bench.zeros(DType::f32, {t, h}),
                     out = bench.zeros(DType::bf16, {t, h}), weight = bench.random({h});
    measure("add_rms_norm, bf16 into an f32 residual", rows * width * 12, [&] {
      bench.ops().add_rms_norm(out, residual, x, weight, 1e-6f, 0.f, bench.stream());
    });
  }
  {
    const std::int64_t heads = bench.size(40, 2), dim = 128;
    const TensorView x = bench.random({t, heads, dim}), table = bench.zeros(DType::f32, {t, dim});
    std::vector<std::int32_t> positions(static_cast<std::size_t>(t));
    std::iota(positions.begin(), positions.end(), 0);
    const TensorView at = bench.upload(positions, {t});
    measure("rope, 40 heads", rows * static_cast<double>(heads * dim) * 4,
            [&] { bench.ops().rope(x, at, table, RopeStyle::halves, bench.stream()); });
  }
  {
    const TensorView gate_up = bench.random({t, 2 * inner}),
                     out = bench.zeros(DType::bf16, {t, inner});
    measure("silu(gate) times up", rows * static_cast<double>(inner) * 6,
            [&] { bench.ops().gated_activation(out, gate_up, Activation::silu, bench.stream()); });
  }
}

// A prompt of one request through a layer of Qwen3-Next's, by chunks as models ask for it, and by
// tokens.
void delta_rule(Bench& bench, std::int64_t tokens) {
  const std::int64_t t = bench.size(tokens, 80), heads = bench.size(32, 2), dim = 128;
  DeltaRuleArgs args;
  args.out = bench.zeros(DType::f32, {t, heads, dim});
  args.q = bench.random({t, heads / 2, dim}), args.k = bench.random({t, heads / 2, dim});
  args.v = bench.random({t, heads, dim});
  args.a = bench.random({t, heads}), args.b = bench.random({t, heads});
  args.a_log = args.dt_bias = bench.zeros(DType::f32, {heads});
  args.state = bench.zeros(DType::f32, {1, heads, dim, dim});
  args.query_start = bench.upload(std::vector{0, static_cast<std::int32_t>(t)}, {2});
  args.state_read = bench.upload(std::vector<std::int32_t>{-1}, {1});
  args.state_write = bench.upload(std::vector<std::int32_t>{0}, {1});
  const double bytes =
      static_cast<double>(args.q.bytes() + args.k.bytes() + args.v.bytes() + args.out.bytes());
  for (const bool chunks : {true, false}) {
    args.max_query_len = chunks ? static_cast<int>(t) : 0;
    const double seconds =
        device_seconds(bench.stream(), [&] { bench.ops().gated_delta_rule(args, bench.stream()); });
    bench.memory_bound("gated delta net, a prompt of " + std::to_string(tokens) +
                           (chunks ? ", by chunks" : ", by tokens"),
                       0, bytes, seconds);
  }
  bench.forget_tensors();
}

// The same of Nemotron-H's.
void selective_scan(Bench& bench, std::int64_t tokens) {
  const std::int64_t t = bench.size(tokens, 80), heads = bench.size(128, 2), dim = 64;
  const std::int64_t groups = bench.size(8, 1), state = 128;
  ScanArgs args;
  args.out = bench.zeros(DType::f32, {t, heads, dim});
  args.x = bench.random({t, heads, dim});
  args.b = bench.random({t, groups, state}), args.c = bench.random({t, groups, state});
  args.dt = bench.random({t, heads});
  args.a_log = args.dt_bias = args.d_skip = bench.zeros(DType::f32, {heads});
  args.state = bench.zeros(DType::f32, {1, heads, dim, state});
  args.query_start = bench.upload(std::vector{0, static_cast<std::int32_t>(t)}, {2});
  args.state_read = bench.upload(std::vector<std::int32_t>{-1}, {1});
  args.state_write = bench.upload(std::vector<std::int32_t>{0}, {1});
  const double bytes =
      static_cast<double>(args.x.bytes() + args.b.bytes() + args.c.bytes() + args.out.bytes());
  for (const bool chunks : {true, false}) {
    args.max_query_len = chunks ? static_cast<int>(t) : 0;
    const double seconds =
        device_seconds(bench.stream(), [&] { bench.ops().selective_scan(args, bench.stream()); });
    bench.memory_bound(
        "Mamba2, a prompt of " + std::to_string(tokens) + (chunks ? ", by chunks" : ", by tokens"),
        0, bytes, seconds);
  }
  bench.forget_tensors();
}

void sampling(Bench& bench, const char* name, float temperature, int top_k, float top_p) {
  const std::int64_t rows = bench.size(256, 3), vocab = bench.size(128256, 500);
  std::vector<float> logits(static_cast<std::size_t>(rows * vocab));
  std::mt19937 rng(1);
  for (float& x : logits) x = static_cast<float>(rng() >> 8) * 0x1p-22f;
  const auto each = [&](auto value) {
    return bench.upload(std::vector(static_cast<std::size_t>(rows), value), {rows});
  };
  SamplingArgs args;
  args.temperature = each(temperature), args.top_k = each(static_cast<std::int32_t>(top_k));
  args.top_p = each(top_p), args.min_p = each(0.f);
  args.seed = each(std::uint64_t{7}), args.position = each(std::int64_t{9});
  const TensorView device_logits = bench.upload(logits, {rows, vocab});
  const TensorView tokens = bench.zeros(DType::i32, {rows});
  const double seconds = device_seconds(
      bench.stream(), [&] { bench.ops().sample(tokens, device_logits, args, bench.stream()); });
  bench.memory_bound(std::string("sample, 256 rows of 128256, ") + name, 1. / 3,
                     static_cast<double>(rows * vocab) * 4, seconds);
  bench.forget_tensors();
}

void run(bool tiny) {
  Bench bench(tiny);
  attention_cases(bench);
  for (const std::int64_t rows : {1, 2, 4, 8, 16}) {
    decode_linear(bench, rows, 6144, 4096, 0.92);
    decode_linear(bench, rows, 4096, 4096, 0.92);
    decode_linear(bench, rows, 28672, 4096, 0.92);
    decode_linear(bench, rows, 4096, 14336, 0.92);
    if (rows <= 8) decode_gated_linear(bench, rows, 14336, 4096);
  }
  // Within what a block norms for itself (cuda/kernels/block_norm.h).
  decode_normed_linear(bench, 1, 28672, 4096);
  for (const std::int64_t rows : {1, 3}) decode_normed_linear(bench, rows, 16384, 2048);
  for (const std::int64_t rows : {1, 6}) decode_normed_linear(bench, rows, 6144, 1024);
  for (const std::int64_t rows : {1, 8, 16}) {
    decode_fp8_linear(bench, rows, 28672, 4096, rows <= 8 ? 0.88 : 0);
    decode_fp8_linear(bench, rows, 4096, 14336, rows <= 8 ? 0.88 : 0);
  }
  prompt_experts(bench, 8192);
  row_operators(bench);
  delta_rule(bench, 8192);
  selective_scan(bench, 8192);
  sampling(bench, "greedy", 0.f, 0, 1.f);
  sampling(bench, "top_k 50", 1.f, 50, 1.f);
  sampling(bench, "top_p 0.9", 1.f, 0, 0.9f);
}

}  // namespace
}  // namespace quire::perf

int main(int argc, char** argv) {
  if (const std::string reason = quire::cuda_unavailable(); !reason.empty()) {
    std::fprintf(stderr, "cuda_ops_perf: %s\n", reason.c_str());
    return 77;
  }
  try {
    quire::perf::run(argc > 1 && std::strcmp(argv[1], "--tiny") == 0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_ops_perf: %s\n", error.what());
    return 1;
  }
}
