// Speed of the CPU operators next to this machine's limits, probed in the same run: DRAM reads for
// decode, vdpbf16ps (or FMA) throughput for prefill. One line a case: what it moves or multiplies
// per second, and the share of the limit. Ratios are what may be compared between runs.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "backend/fp8.h"
#include "cpu/cpu_backend.h"
#include "tests/perf/cpu_limits.h"

namespace quire {
namespace {

class Bench {
 public:
  explicit Bench(const CpuOptions& options)
      : device_(make_cpu_device()), ops_(make_cpu_ops(options)), limits_(options) {}

  Ops& ops() { return *ops_; }
  template <class F>
  double best_seconds(F&& body) const {
    return perf::best_seconds(limits_.threads(), body);
  }
  StreamRef stream() { return device_->stream(); }
  const perf::CpuLimits& limits() const { return limits_; }

  TensorView tensor(DType dtype, std::initializer_list<std::int64_t> extents) {
    TensorView v(nullptr, dtype, extents);
    Buffer& buffer = buffers_.emplace_back(device_->allocate(v.bytes()));
    fill(buffer, dtype);
    return {buffer.data(), dtype, extents};
  }
  TensorView ints(const std::vector<std::int32_t>& values) {
    Buffer& buffer = buffers_.emplace_back(device_->allocate(values.size() * 4));
    std::memcpy(buffer.data(), values.data(), values.size() * 4);
    return {buffer.data(), DType::i32, {static_cast<std::int64_t>(values.size())}};
  }
  void forget_tensors() { buffers_.clear(); }

 private:
  // Small numbers of both signs: subnormals and infinities would distort times.
  static void fill(Buffer& buffer, DType dtype) {
    std::uint32_t state = 12345;
    const auto next = [&] {
      state = state * 1664525u + 1013904223u;
      return (static_cast<float>(state >> 8) / 16777216.f - 0.5f) * 0.25f;
    };
    if (dtype == DType::bf16) {
      auto* const p = static_cast<bf16*>(buffer.data());
      for (std::size_t i = 0; i < buffer.bytes() / 2; ++i) p[i] = bf16(next());
    } else if (dtype == DType::f32) {
      auto* const p = static_cast<float*>(buffer.data());
      for (std::size_t i = 0; i < buffer.bytes() / 4; ++i) p[i] = next();
    } else if (dtype == DType::fp8_e4m3) {
      auto* const p = static_cast<fp8_e4m3*>(buffer.data());
      for (std::size_t i = 0; i < buffer.bytes(); ++i) p[i] = fp8_e4m3(next());
    } else {
      std::memset(buffer.data(), 0, buffer.bytes());
    }
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Ops> ops_;
  perf::CpuLimits limits_;
  std::vector<Buffer> buffers_;
};

// Weights of several layers go by, so that none is in a cache when its turn comes.
void decode_linear(Bench& bench, std::int64_t rows, std::int64_t n, std::int64_t k) {
  const std::int64_t layers = std::max<std::int64_t>(1, (std::int64_t{384} << 20) / (n * k * 2));
  const TensorView weights = bench.tensor(DType::bf16, {layers, n, k});
  const TensorView x = bench.tensor(DType::bf16, {rows, k}),
                   out = bench.tensor(DType::bf16, {rows, n});
  const double seconds = bench.best_seconds([&] {
    for (std::int64_t l = 0; l < layers; ++l) {
      bench.ops().linear(out, x, weights.rows(l, l + 1).reshape({n, k}), {}, bench.stream());
    }
  });
  const double rate = static_cast<double>(weights.bytes()) / seconds / 1e9;
  std::printf("linear %3ld x %5ld x %5ld bf16   %7.1f GB/s   %5.2f of DRAM read\n", rows, n, k,
              rate, rate / bench.limits().read_gb());
  bench.forget_tensors();
}

// Beside bf16 of the same shape: half the bytes, and codes to unpack.
void fp8_linear(Bench& bench, WeightFormat format, std::int64_t rows, std::int64_t n,
                std::int64_t k) {
  const std::int64_t layers = std::max<std::int64_t>(1, (std::int64_t{384} << 20) / (n * k * 2));
  const TensorView plain = bench.tensor(DType::bf16, {layers, n, k});
  const TensorView codes = bench.tensor(DType::fp8_e4m3, {layers, n, k});
  const std::int64_t blocks = (n + kFp8Block - 1) / kFp8Block;
  const TensorView scales = format == WeightFormat::fp8_rows
                                ? bench.tensor(DType::f32, {n})
                                : bench.tensor(DType::f32, {blocks, k / kFp8Block});
  const TensorView x = bench.tensor(DType::bf16, {rows, k}),
                   out = bench.tensor(DType::bf16, {rows, n});
  const auto layer = [&](TensorView all, std::int64_t l) {
    return all.rows(l, l + 1).reshape({n, k});
  };
  const double bf16 = bench.best_seconds([&] {
    for (std::int64_t l = 0; l < layers; ++l)
      bench.ops().linear(out, x, layer(plain, l), {}, bench.stream());
  });
  const double fp8 = bench.best_seconds([&] {
    for (std::int64_t l = 0; l < layers; ++l)
      bench.ops().quantized_linear(out, x, {layer(codes, l), scales, format}, {}, {},
                                   bench.stream());
  });
  std::printf("linear %3ld x %5ld x %5ld fp8 %s %7.1f GB/s   %5.2f of bf16's time\n", rows, n, k,
              format == WeightFormat::fp8_rows ? "rows  " : "blocks",
              static_cast<double>(codes.bytes()) / fp8 / 1e9, fp8 / bf16);
  bench.forget_tensors();
}

// Weights in groups: of few rows against the reads, of many against the products of 8 bits.
void group_linear(Bench& bench, const char* name, const GroupFormat& format, std::int64_t rows,
                  std::int64_t n, std::int64_t k) {
  const std::int64_t row_bytes = group_row_bytes(format, k);
  const std::int64_t layers =
      rows > 8 ? 1 : std::max<std::int64_t>(1, (std::int64_t{384} << 20) / (n * row_bytes));
  const TensorView tiles = bench.tensor(DType::u8, {layers, n, row_bytes});
  const TensorView x = bench.tensor(DType::bf16, {rows, k}),
                   out = bench.tensor(DType::bf16, {rows, n});
  const double seconds = bench.best_seconds([&] {
    for (std::int64_t l = 0; l < layers; ++l) {
      const Weight weight{.data = tiles.rows(l, l + 1).reshape({n, row_bytes}),
                          .scales = {},
                          .format = WeightFormat::groups,
                          .group = format};
      bench.ops().quantized_linear(out, x, weight, {}, {}, bench.stream());
    }
  });
  const double bytes = static_cast<double>(tiles.bytes()) / seconds / 1e9;
  const double products = 2e-9 * static_cast<double>(layers * rows * n * k) / seconds;
  std::printf("linear %3ld x %5ld x %5ld %-6s %7.1f GB/s   %5.2f of DRAM read %8.1f GOP/s %5.2f of int8 peak\n",
              rows, n, k, name, bytes, bytes / bench.limits().read_gb(), products,
              products / bench.limits().int8_gops());
  bench.forget_tensors();
}

void prefill_linear(Bench& bench, DType dtype, std::int64_t rows, std::int64_t n, std::int64_t k) {
  const TensorView w = bench.tensor(dtype, {n, k}), x = bench.tensor(dtype, {rows, k});
  const TensorView out = bench.tensor(dtype, {rows, n});
  const double seconds =
      bench.best_seconds([&] { bench.ops().linear(out, x, w, {}, bench.stream()); });
  const double rate = 2e-9 * static_cast<double>(rows * n * k) / seconds;
  const double limit =
      dtype == DType::bf16 ? bench.limits().bf16_gflops() : bench.limits().f32_gflops();
  std::printf("linear %3ld x %5ld x %5ld %s   %7.1f GFLOP/s   %5.2f of peak\n", rows, n, k,
              dtype == DType::bf16 ? "bf16" : "f32 ", rate, rate / limit);
  bench.forget_tensors();
}

void attention(Bench& bench, std::int64_t requests, std::int64_t cached, std::int64_t fresh,
               DType cache = DType::bf16) {
  constexpr std::int64_t kHeads = 32, kKvHeads = 8, kDim = 64, kBlock = 16;
  const std::int64_t length = cached + fresh, columns = (length + kBlock - 1) / kBlock;
  AttentionArgs args;
  args.out = bench.tensor(DType::bf16, {requests * fresh, kHeads, kDim});
  args.q = bench.tensor(DType::bf16, {requests * fresh, kHeads, kDim});
  args.k_cache = bench.tensor(cache, {requests * columns, kBlock, kKvHeads, kDim});
  args.v_cache = bench.tensor(cache, {requests * columns, kBlock, kKvHeads, kDim});
  std::vector<std::int32_t> table(static_cast<std::size_t>(requests * columns));
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<std::int32_t>(i);
  std::shuffle(table.begin(), table.end(), std::mt19937(1));
  args.block_table = bench.ints(table).reshape({requests, columns});
  std::vector<std::int32_t> starts,
      lens(static_cast<std::size_t>(requests), static_cast<std::int32_t>(length));
  for (std::int64_t r = 0; r <= requests; ++r)
    starts.push_back(static_cast<std::int32_t>(r * fresh));
  args.query_start = bench.ints(starts);
  args.seq_lens = bench.ints(lens);
  args.scale = 0.125f;
  args.max_query_len = static_cast<int>(fresh);
  args.max_seq_len = static_cast<int>(length);
  const double seconds =
      bench.best_seconds([&] { bench.ops().paged_attention(args, bench.stream()); });
  const double pairs = static_cast<double>(requests * fresh) *
                       (static_cast<double>(cached) + (static_cast<double>(fresh) + 1) / 2);
  const double rate = 4e-9 * pairs * kHeads * kDim / seconds;
  const double bytes =
      static_cast<double>(args.k_cache.bytes() + args.v_cache.bytes()) / seconds / 1e9;
  std::printf(
      "attention %2ld x (%5ld + %4ld) %-8s %7.1f GFLOP/s %5.2f of f32 peak, %6.1f GB/s %5.2f of "
      "DRAM read\n",
      requests, cached, fresh, name_of(cache).data(), rate, rate / bench.limits().f32_gflops(),
      bytes, bytes / bench.limits().read_gb());
  bench.forget_tensors();
}

void elementwise(Bench& bench, const char* name, std::int64_t tokens, std::int64_t width,
                 double bytes_per_element,
                 const std::function<void(TensorView out, TensorView x)>& body,
                 std::int64_t x_width) {
  const TensorView out = bench.tensor(DType::bf16, {tokens, width});
  const TensorView x = bench.tensor(DType::bf16, {tokens, x_width});
  const double seconds = bench.best_seconds([&] { body(out, x); });
  const double rate = bytes_per_element * static_cast<double>(tokens * width) / seconds / 1e9;
  std::printf("%-14s %5ld x %5ld        %8.2f us  %6.1f GB/s\n", name, tokens, width, seconds * 1e6,
              rate);
  bench.forget_tensors();
}

void delta_rule(Bench& bench, std::int64_t requests, std::int64_t fresh) {
  constexpr std::int64_t kKeyHeads = 16, kValueHeads = 32, kDim = 128;
  const std::int64_t tokens = requests * fresh;
  DeltaRuleArgs args;
  args.out = bench.tensor(DType::bf16, {tokens, kValueHeads, kDim});
  args.q = bench.tensor(DType::bf16, {tokens, kKeyHeads, kDim});
  args.k = bench.tensor(DType::bf16, {tokens, kKeyHeads, kDim});
  args.v = bench.tensor(DType::bf16, {tokens, kValueHeads, kDim});
  args.a = bench.tensor(DType::bf16, {tokens, kValueHeads});
  args.b = bench.tensor(DType::bf16, {tokens, kValueHeads});
  args.a_log = bench.tensor(DType::f32, {kValueHeads});
  args.dt_bias = bench.tensor(DType::f32, {kValueHeads});
  args.state = bench.tensor(DType::f32, {requests, kValueHeads, kDim, kDim});
  std::vector<std::int32_t> starts, ids;
  for (std::int64_t r = 0; r <= requests; ++r)
    starts.push_back(static_cast<std::int32_t>(r * fresh));
  for (std::int64_t r = 0; r < requests; ++r) ids.push_back(static_cast<std::int32_t>(r));
  args.query_start = bench.ints(starts);
  args.state_read = args.state_write = bench.ints(ids);
  const double seconds =
      bench.best_seconds([&] { bench.ops().gated_delta_rule(args, bench.stream()); });
  const double rate = 7e-9 * static_cast<double>(tokens * kValueHeads * kDim * kDim) / seconds;
  std::printf(
      "delta rule %2ld x %4ld             %7.1f GFLOP/s %5.2f of f32 peak, %6.1f GB/s of state\n",
      requests, fresh, rate, rate / bench.limits().f32_gflops(),
      2. * static_cast<double>(args.state.bytes()) / seconds / 1e9);
  bench.forget_tensors();
}

void scan(Bench& bench, std::int64_t requests, std::int64_t fresh) {
  constexpr std::int64_t kHeads = 64, kDim = 64, kState = 128, kGroups = 8;
  const std::int64_t tokens = requests * fresh;
  ScanArgs args;
  args.out = bench.tensor(DType::bf16, {tokens, kHeads, kDim});
  args.x = bench.tensor(DType::bf16, {tokens, kHeads, kDim});
  args.b = bench.tensor(DType::bf16, {tokens, kGroups, kState});
  args.c = bench.tensor(DType::bf16, {tokens, kGroups, kState});
  args.dt = bench.tensor(DType::bf16, {tokens, kHeads});
  args.a_log = bench.tensor(DType::f32, {kHeads});
  args.dt_bias = bench.tensor(DType::f32, {kHeads});
  args.d_skip = bench.tensor(DType::f32, {kHeads});
  args.state = bench.tensor(DType::f32, {requests, kHeads, kDim, kState});
  std::vector<std::int32_t> starts, ids;
  for (std::int64_t r = 0; r <= requests; ++r)
    starts.push_back(static_cast<std::int32_t>(r * fresh));
  for (std::int64_t r = 0; r < requests; ++r) ids.push_back(static_cast<std::int32_t>(r));
  args.query_start = bench.ints(starts);
  args.state_read = args.state_write = bench.ints(ids);
  const double seconds =
      bench.best_seconds([&] { bench.ops().selective_scan(args, bench.stream()); });
  const double rate = 5e-9 * static_cast<double>(tokens * kHeads * kDim * kState) / seconds;
  std::printf(
      "scan %2ld x %4ld                   %7.1f GFLOP/s %5.2f of f32 peak, %6.1f GB/s of state\n",
      requests, fresh, rate, rate / bench.limits().f32_gflops(),
      2. * static_cast<double>(args.state.bytes()) / seconds / 1e9);
  bench.forget_tensors();
}

void attentions(Bench& bench) {
  for (const DType cache : {DType::bf16, DType::fp8_e4m3}) {
    attention(bench, 1, 0, 512, cache);
    attention(bench, 1, 2048, 512, cache);
    attention(bench, 1, 4096, 1, cache);
    attention(bench, 1, 8192, 1, cache);
    attention(bench, 8, 1024, 1, cache);
    attention(bench, 1, 200, 1, cache);
  }
}

void prompts(Bench& bench) {
  for (const std::int64_t rows : {16, 64, 512})
    prefill_linear(bench, DType::bf16, rows, 2048, 2048);
  prefill_linear(bench, DType::bf16, 512, 8192, 2048);
  prefill_linear(bench, DType::bf16, 512, 2048, 8192);
  prefill_linear(bench, DType::bf16, 64, 256, 256);
  prefill_linear(bench, DType::f32, 512, 2048, 2048);
}

void run(Bench& bench, const std::string& part) {
  if (part == "attention") return attentions(bench);
  if (part == "prompts") return prompts(bench);
  for (const std::int64_t rows : {1, 2, 8}) decode_linear(bench, rows, 2048, 2048);
  decode_linear(bench, 1, 8192, 2048);
  decode_linear(bench, 1, 2048, 8192);
  for (const auto format : {WeightFormat::fp8_rows, WeightFormat::fp8_blocks}) {
    for (const std::int64_t rows : {1, 8, 64}) fp8_linear(bench, format, rows, 2048, 2048);
  }
  for (const std::int64_t rows : {1, 8, 64, 512}) {
    group_linear(bench, "Q8_0", {.bits = 8, .zero = 128}, rows, 2048, 2048);
    group_linear(bench, "Q4_0", {.bits = 4, .zero = 8}, rows, 2048, 2048);
    group_linear(bench, "Q4_K", {.bits = 4, .has_min = true}, rows, 2048, 2048);
    group_linear(bench, "Q6_K", {.bits = 6, .group = 16, .zero = 32}, rows, 2048, 2048);
  }
  if (part == "groups") return;
  prompts(bench);
  attentions(bench);
  delta_rule(bench, 1, 256);
  delta_rule(bench, 8, 1);
  scan(bench, 1, 256);
  scan(bench, 8, 1);
  const TensorView weight = bench.tensor(DType::bf16, {2048});
  elementwise(
      bench, "rms_norm", 512, 2048, 4,
      [&](TensorView out, TensorView x) {
        bench.ops().rms_norm(out, x, weight, 1e-6f, 0.f, bench.stream());
      },
      2048);
}

}  // namespace
}  // namespace quire

// cpu_ops_perf [threads [instruction set by number [PART]]]
// PART: groups, the products up to those of groups; prompts; attention
int main(int argc, char** argv) {
  quire::CpuOptions options;
  if (argc > 1) options.threads = std::atoi(argv[1]);
  if (argc > 2) options.best_isa = static_cast<quire::CpuIsa>(std::atoi(argv[2]));
  quire::Bench bench(options);
  bench.limits().print();
  quire::run(bench, argc > 3 ? argv[3] : "");
  bench.limits().print_again();
}
