// Speed of the CUDA operators beside the limits that the same run probes: reads of device memory
// for what is bound by it, cuBLASLt for what is bound by the tensor cores. One JSON object a line.
// --tiny: small shapes, to see that it runs.

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cuda/cuda_backend.h"
#include "cuda/cuda_traits.h"
#include "cuda/gemm.h"
#include "tests/perf/cuda_probes.h"
#include "tests/perf/perf_record.h"

namespace quire::perf {
namespace {

class Bench {
 public:
  explicit Bench(bool tiny)
      : device_(make_cuda_device({})),
        ops_(make_cuda_ops(*device_)),
        gemm_workspace_(device_->allocate(cuda::kGemmWorkspaceBytes, MemoryPurpose::kernels)),
        gemm_(cuda::make_gemm(gemm_workspace_.data())),
        tiny_(tiny) {
    limits_ = probe_gpu(*device_, *ops_, tiny);
  }
  Ops& ops() { return *ops_; }
  cuda::Gemm& gemm() { return *gemm_; }
  StreamRef stream() { return device_->stream(); }
  bool tiny() const { return tiny_; }
  std::int64_t size(std::int64_t full, std::int64_t tiny) const { return tiny_ ? tiny : full; }
  // How many copies of a tensor of these bytes a case should go through, so that none is in the L2
  // cache when its turn comes.
  std::int64_t copies(std::int64_t bytes) const {
    return std::clamp<std::int64_t>((std::int64_t{512} << 20) / bytes, 1, tiny_ ? 2 : 64);
  }

  TensorView zeros(DType dtype, std::initializer_list<std::int64_t> extents) {
    const TensorView shape(nullptr, dtype, extents);
    const Buffer& buffer = buffers_.emplace_back(device_->allocate_zeroed(shape.bytes()));
    return {buffer.data(), dtype, extents};
  }
  TensorView random(std::initializer_list<std::int64_t> extents, float scale = 1.f) {
    const TensorView tensor = zeros(DType::bf16, extents);
    fill_bf16(tensor, scale, stream());
    return tensor;
  }
  template <class T>
  TensorView upload(const std::vector<T>& values, std::initializer_list<std::int64_t> extents) {
    const TensorView tensor = zeros(dtype_of<T>, extents);
    device_->copy(tensor.data(), values.data(), values.size() * sizeof(T), stream());
    device_->synchronize(stream());
    return tensor;
  }
  void forget_tensors() { buffers_.clear(); }

  void memory_bound(const std::string& name, double goal, double bytes, double seconds) const {
    Record("kernel", name)
        .number("us", seconds * 1e6)
        .number("gb_s", bytes / seconds * 1e-9)
        .number("share_of_read", bytes / seconds / limits_.read_bytes)
        .number("goal", goal);
  }
  void compute_bound(const std::string& name, double flops, double seconds) const {
    Record("kernel", name)
        .number("us", seconds * 1e6)
        .number("tflop_s", flops / seconds * 1e-12)
        .number("share_of_gemm", flops / seconds / limits_.bf16_flops);
  }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  Buffer gemm_workspace_;
  std::unique_ptr<cuda::Gemm> gemm_;
  bool tiny_;
  GpuLimits limits_;
  std::vector<Buffer> buffers_;
};

struct AttentionShape {
  std::int64_t requests, cached, fresh, heads, kv_heads, dim;
  DType cache = DType::bf16;
};

// [blocks, block_size, heads, dim], random.
TensorView random_cache(Bench& bench, DType dtype, std::int64_t blocks, std::int64_t block_size,
                        std::int64_t heads, std::int64_t dim) {
  if (dtype == DType::bf16) return bench.random({blocks, block_size, heads, dim});
  const TensorView cache = bench.zeros(dtype, {blocks, block_size, heads, dim});
  std::vector<std::int64_t> slots(static_cast<std::size_t>(blocks * block_size));
  std::iota(slots.begin(), slots.end(), 0);
  const std::int64_t tokens = blocks * block_size;
  bench.ops().kv_write(cache, {}, bench.random({tokens, heads, dim}), {},
                       bench.upload(slots, {tokens}), {}, bench.stream());
  return cache;
}

// Every request's blocks lie anywhere in the cache.
AttentionArgs attention_args(Bench& bench, const AttentionShape& s) {
  constexpr std::int64_t kBlockSize = 16;
  const std::int64_t context = s.cached + s.fresh,
                     columns = (context + kBlockSize - 1) / kBlockSize;
  const std::int64_t blocks = s.requests * columns;
  std::vector<std::int32_t> table(static_cast<std::size_t>(blocks)), starts, lens;
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937(1));
  for (std::int64_t r = 0; r <= s.requests; ++r)
    starts.push_back(static_cast<std::int32_t>(r * s.fresh));
  lens.assign(static_cast<std::size_t>(s.requests), static_cast<std::int32_t>(context));
  const std::int64_t tokens = s.requests * s.fresh;
  AttentionArgs args;
  args.out = bench.zeros(DType::bf16, {tokens, s.heads, s.dim});
  args.q = bench.random({tokens, s.heads, s.dim});
  args.k_cache = random_cache(bench, s.cache, blocks, kBlockSize, s.kv_heads, s.dim);
  args.v_cache = random_cache(bench, s.cache, blocks, kBlockSize, s.kv_heads, s.dim);
  args.block_table = bench.upload(table, {s.requests, columns});
  args.query_start = bench.upload(starts, {s.requests + 1});
  args.seq_lens = bench.upload(lens, {s.requests});
  args.scale = 1.f / std::sqrt(static_cast<float>(s.dim));
  args.max_query_len = static_cast<int>(s.fresh);
  args.max_seq_len = static_cast<int>(context);
  return args;
}

void decode_attention(Bench& bench, std::int64_t requests, std::int64_t context, double goal,
                      DType cache = DType::bf16) {
  const AttentionShape s{
      bench.size(requests, 2), bench.size(context, 80) - 1, 1, 32, 8, 128, cache};
  const AttentionArgs args = attention_args(bench, s);
  const double seconds = device_seconds(
      bench.stream(), [&] { bench.ops().paged_attention(args, bench.stream()); }, 9,
      bench.tiny() ? 1 : 8);
  const double bytes = 2. * static_cast<double>(s.requests * (s.cached + 1) * s.kv_heads * s.dim) *
                       static_cast<double>(size_of(cache));
  const std::string over = cache == DType::bf16 ? "" : ", fp8 cache";
  bench.memory_bound("decode attention, batch " + std::to_string(requests) + ", context " +
                         std::to_string(context) + over,
                     goal, bytes, seconds);
  bench.forget_tensors();
}

// A request that decodes in a step with another's prompt.
void decode_beside_prompt(Bench& bench, std::int64_t context) {
  const std::int64_t prompt = bench.size(64, 40), length = bench.size(context, 80);
  AttentionArgs args = attention_args(bench, {2, length - prompt, prompt, 32, 8, 128});
  const auto fresh = static_cast<std::int32_t>(prompt), end = static_cast<std::int32_t>(length);
  args.query_start = bench.upload<std::int32_t>({0, 1, 1 + fresh}, {3});
  args.seq_lens = bench.upload<std::int32_t>({end, fresh}, {2});
  const double seconds =
      device_seconds(bench.stream(), [&] { bench.ops().paged_attention(args, bench.stream()); });
  bench.memory_bound("decode attention, context " + std::to_string(context) + ", beside a prompt",
                     0.5, static_cast<double>(length) * 8 * 128 * 4, seconds);
  bench.forget_tensors();
}

// Latent attention of requests of these lengths, `fresh` tokens each, in a layer of DeepSeek-V3's.
void latent_decode(Bench& bench, const std::string& name, std::vector<std::int64_t> lengths,
                   std::int64_t heads, std::int64_t fresh) {
  constexpr std::int64_t kBlockSize = 64, kLatent = 512, kRow = kLatent + 64;
  if (bench.tiny()) lengths = {80, 30};
  const auto requests = static_cast<std::int64_t>(lengths.size());
  const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const std::int64_t columns = (longest + kBlockSize - 1) / kBlockSize;
  std::vector<std::int32_t> table(static_cast<std::size_t>(requests * columns)), starts = {0}, ends;
  std::int64_t blocks = 0, keys = 0;
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    for (std::int64_t c = 0; c * kBlockSize < lengths[r]; ++c)
      table[r * static_cast<std::size_t>(columns) + static_cast<std::size_t>(c)] =
          static_cast<std::int32_t>(blocks++);
    starts.push_back(starts.back() + static_cast<std::int32_t>(fresh));
    ends.push_back(static_cast<std::int32_t>(lengths[r]));
    keys += lengths[r];
  }
  MlaArgs args;
  args.out = bench.zeros(DType::bf16, {requests * fresh, heads, kLatent});
  args.q = bench.random({requests * fresh, heads, kRow});
  args.cache = bench.random({blocks, kBlockSize, kRow});
  args.block_table = bench.upload(table, {requests, columns});
  args.query_start = bench.upload(starts, {requests + 1});
  args.seq_lens = bench.upload(ends, {requests});
  args.scale = .1f;
  args.max_query_len = static_cast<int>(fresh);
  args.max_seq_len = static_cast<int>(longest);
  const double seconds =
      device_seconds(bench.stream(), [&] { bench.ops().mla_attention(args, bench.stream()); });
  if (heads * fresh <= 64) {
    bench.memory_bound(name, 0.75, static_cast<double>(keys * kRow) * 2, seconds);
  } else {
    const auto rows = static_cast<double>(heads * fresh);
    bench.compute_bound(name, 2. * rows * static_cast<double>(keys * (kRow + kLatent)), seconds);
  }
  bench.forget_tensors();
}

void prefill_attention(Bench& bench, std::int64_t tokens, DType cache = DType::bf16) {
  const std::int64_t n = bench.size(tokens, 40);
  const AttentionArgs args = attention_args(bench, {1, 0, n, 32, 8, 128, cache});
  const double seconds =
      device_seconds(bench.stream(), [&] { bench.ops().paged_attention(args, bench.stream()); });
  const double flops = 2. * static_cast<double>(n) * static_cast<double>(n) * 32 * 128;  // causal
  const std::string over = cache == DType::bf16 ? "" : ", fp8 cache";
  bench.compute_bound("prefill attention, causal, tokens " + std::to_string(tokens) + over, flops,
                      seconds);
  bench.forget_tensors();
}

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
    bench.ops().gated_linear(out, x, {.data = weight, .scales = {}}, Activation::silu,
                             bench.stream());
  });
  measure("linear, then silu times up", [&](TensorView weight) {
    bench.ops().linear(both, x, weight, {}, bench.stream());
    bench.ops().gated_activation(out, both, Activation::silu, bench.stream());
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
    bench.memory_bound("Mamba2, a prompt of " + std::to_string(tokens) +
                           (chunks ? ", by chunks" : ", by tokens"),
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
  decode_attention(bench, 32, 4096, 0.88);
  decode_attention(bench, 128, 1024, 0.88);
  decode_attention(bench, 1, 65536, 0.55);
  decode_attention(bench, 1, 1024, 0);
  decode_beside_prompt(bench, 65536);
  decode_attention(bench, 32, 4096, 0.85, DType::fp8_e4m3);
  decode_attention(bench, 128, 1024, 0.85, DType::fp8_e4m3);
  latent_decode(bench, "latent decode, 32 of 4096, 16 heads", std::vector<std::int64_t>(32, 4096),
                16, 1);
  latent_decode(bench, "latent decode, 32 of 4096, 128 heads", std::vector<std::int64_t>(32, 4096),
                128, 1);
  latent_decode(bench, "latent decode, 8 of 4096, 128 heads, 4 rows each",
                std::vector<std::int64_t>(8, 4096), 128, 4);
  std::vector<std::int64_t> uneven(256, 1024);
  uneven[100] = 100000;
  latent_decode(bench, "latent decode, one of 100000 among 255 of 1024, 16 heads", uneven, 16, 1);
  for (const std::int64_t tokens : {4096, 8192, 16384}) prefill_attention(bench, tokens);
  prefill_attention(bench, 8192, DType::fp8_e4m3);
  for (const std::int64_t rows : {1, 2, 4, 8, 16}) {
    decode_linear(bench, rows, 6144, 4096, 0.92);
    decode_linear(bench, rows, 4096, 4096, 0.92);
    decode_linear(bench, rows, 28672, 4096, 0.92);
    decode_linear(bench, rows, 4096, 14336, 0.92);
    if (rows <= 8) decode_gated_linear(bench, rows, 14336, 4096);
  }
  for (const std::int64_t rows : {1, 8, 16}) {
    decode_fp8_linear(bench, rows, 28672, 4096, rows <= 8 ? 0.88 : 0);
    decode_fp8_linear(bench, rows, 4096, 14336, rows <= 8 ? 0.88 : 0);
  }
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
