#include "tests/perf/cuda_bench.h"

#include <map>

#include "tests/perf/perf_record.h"

namespace quire::perf {
namespace {

const Way kInTurn{"kernels in turn", {}, {.begins_ahead = false}},
    kWarps{"products of warps", {}, {.warpgroups = false}},
    kHalf{"half as many parts", {}, {.parts_percent = 50}},
    kDouble{"twice as many parts", {}, {.parts_percent = 200}},
    kUncut{"not cut", {}, {.parts_percent = 0}};

// Cases that are done in other ways too.
const std::map<std::string, std::vector<Way>>& variants_of_cases() {
  static const std::map<std::string, std::vector<Way>> table = {
      {"decode attention, batch 32, context 4096", {kHalf, kDouble, kInTurn}},
      {"decode attention, batch 128, context 1024", {kHalf, kDouble, kUncut}},
      {"decode attention, batch 1, context 65536", {kHalf, kDouble}},
      {"decode attention, batch 1, context 1024", {kHalf, kDouble, kInTurn}},
      {"decode attention, batch 32, context 4096, fp8 cache", {kHalf, kDouble}},
      {"decode attention, one of 100000 among 255 of 1024", {kHalf, kDouble, kUncut}},
      {"attention of 64 tokens behind 100000", {kHalf, kDouble, kUncut, kWarps}},
      {"attention of 64 tokens behind 8192, 4 requests", {kHalf, kDouble, kUncut}},
      {"attention of 4 tokens behind 16384, 8 requests, 8 heads a KV head", {kUncut, kWarps}},
      {"prefill attention, causal, tokens 4096", {kWarps, kInTurn}},
      {"prefill attention, causal, tokens 8192", {kWarps}},
      {"prefill attention, causal, tokens 8192, heads of 64", {kWarps}},
      {"prefill attention, causal, tokens 8192, heads of 256", {kWarps}},
      {"prefill attention, causal, tokens 8192, fp8 cache", {kWarps}},
      {"attention of 512 tokens behind 7680, fp8 cache", {kWarps}},
      {"attention of 64 tokens behind 100000, fp8 cache", {kWarps}},
      {"latent decode, 32 of 4096, 16 heads", {kWarps}},
      {"latent decode, 32 of 4096, 128 heads", {kWarps}},
      {"latent decode, 32 of 4096, 16 heads, fp8 cache", {kWarps}},
      {"latent decode, 32 of 4096, 128 heads, fp8 cache", {kWarps}},
      {"latent decode, 8 of 4096, 128 heads, 4 rows each", {kWarps}},
      {"experts bf16, a prompt of 8192", {kWarps}},
      {"experts fp8, a prompt of 8192", {kWarps}},
      {"experts MXFP4, a prompt of 8192", {kWarps}},
      {"experts MXFP4, a prompt of 512", {kWarps}},
      {"linear, rows 1, 4096 to 28672", {kInTurn}},
      {"linear, rows 1, 4096 to 4096", {kInTurn}},
      {"linear, fp8 in blocks, rows 1, 14336 to 4096", {kInTurn}},
  };
  return table;
}

// One of each of the largest families.
constexpr const char* kProfiled[] = {
    "decode attention, batch 32, context 4096",
    "decode attention, batch 32, context 4096, fp8 cache",
    "prefill attention, causal, tokens 8192",
    "latent decode, 32 of 4096, 128 heads",
    "linear, rows 1, 4096 to 28672",
    "linear, fp8 in blocks, rows 8, 4096 to 28672",
    "experts MXFP4, a prompt of 8192",
    "gated delta net, a prompt of 8192",
    "sample, 256 rows of 128256, top_k 50",
};

}  // namespace

Bench::Bench(Purpose purpose, bool tiny, std::string only)
    : device_(make_cuda_device({})),
      ops_(make_cuda_ops(*device_)),
      gemm_workspace_(device_->allocate(cuda::kGemmWorkspaceBytes, MemoryPurpose::kernels)),
      gemm_(cuda::make_gemm({.workspace = gemm_workspace_.data()})),
      chosen_gemm_(cuda::make_gemm({.workspace = gemm_workspace_.data(), .choosing_seconds = 10})),
      purpose_(purpose),
      tiny_(tiny),
      only_(std::move(only)) {
  if (purpose == Purpose::speed) limits_ = probe_gpu(*device_, *ops_, tiny);
  chosen_gemm_->begin_choosing();
}

bool Bench::begin(const std::string& name) {
  buffers_.clear();
  if (!contains(name)) return false;
  if (purpose_ == Purpose::variants) return variants_of_cases().contains(name);
  return purpose_ == Purpose::speed ||
         std::find(std::begin(kProfiled), std::end(kProfiled), name) != std::end(kProfiled);
}

std::optional<double> Bench::seconds_of(const std::string& name, const std::function<void()>& body,
                                        Repeats repeats) {
  if (purpose_ == Purpose::speed)
    return device_seconds(stream(), body, tiny_ ? 1 : 9, tiny_ ? 1 : repeats.times) /
           static_cast<double>(repeats.does);
  if (purpose_ == Purpose::profile) {
    profile(name, body, stream());
    return {};
  }
  std::vector<Way> ways = {{"chosen", body}};
  for (Way way : variants_of_cases().at(name)) {
    way.body = body;
    ways.push_back(std::move(way));
  }
  compare(name, ways, repeats);
  return {};
}

void Bench::memory_bound(const std::string& name, double goal, double bytes,
                         const std::function<void()>& body, Repeats repeats) {
  const std::optional<double> measured = seconds_of(name, body, repeats);
  if (!measured) return;
  const double seconds = *measured;
  Record("kernel", name)
      .number("us", seconds * 1e6)
      .number("gb_s", bytes / seconds * 1e-9)
      .number("share_of_read", bytes / seconds / limits_.read_bytes)
      .number("goal", goal);
}

void Bench::compute_bound(const std::string& name, double flops, const std::function<void()>& body,
                          Repeats repeats) {
  const std::optional<double> measured = seconds_of(name, body, repeats);
  if (!measured) return;
  const double seconds = *measured;
  Record("kernel", name)
      .number("us", seconds * 1e6)
      .number("tflop_s", flops / seconds * 1e-12)
      .number("share_of_gemm", flops / seconds / limits_.bf16_flops);
}

void Bench::compare(const std::string& name, const std::vector<Way>& ways, Repeats repeats) {
  const int rounds = tiny_ ? 1 : 5;
  std::vector<std::vector<double>> seconds(ways.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t w = 0; w < ways.size(); ++w) {
      cuda::variants = ways[w].variants;
      seconds[w].push_back(
          device_seconds(stream(), ways[w].body, tiny_ ? 1 : 3, tiny_ ? 1 : repeats.times) /
          static_cast<double>(repeats.does));
      cuda::variants = {};
    }
  }
  for (std::vector<double>& s : seconds) std::sort(s.begin(), s.end());
  const auto middle = static_cast<std::size_t>(rounds / 2);
  for (std::size_t w = 1; w < ways.size(); ++w)
    Record("ab", name)
        .text("a", ways[0].label)
        .text("b", ways[w].label)
        .number("a_us", seconds[0][middle] * 1e6)
        .number("b_us", seconds[w][middle] * 1e6)
        .number("b_over_a", seconds[w][middle] / seconds[0][middle]);
}

}  // namespace quire::perf
