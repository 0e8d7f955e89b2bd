// Every golden model over an fp8 cache: the bits that it computes over a float32 cache whose rows
// were rounded before they were written. What eight bits do to a model is in docs/accuracy.md.

#include <catch2/catch.hpp>

#include "app/check/golden.h"
#include "backend/fp8.h"
#include "cpu/cpu_ops.h"
#include "tests/support/direct_runner.h"
#include "tests/support/golden_folders.h"

namespace quire {
namespace {

// Writes what an fp8 cache would give back.
class RoundingOps final : public CpuOps {
 public:
  RoundingOps() : CpuOps({.threads = 2}) {}

  void kv_write(TensorView k_cache, TensorView v_cache, TensorView k, TensorView v,
                TensorView slots, CacheScale scale, StreamRef stream) override {
    std::vector<float> k_rows, v_rows;
    const TensorView rounded_v = v.empty() ? v : rounded(v, v_rows);
    CpuOps::kv_write(k_cache, v_cache, rounded(k, k_rows), rounded_v, slots, scale, stream);
  }
  // The three operators one after another, for that write.
  void prepare_heads(const HeadArgs& args, StreamRef stream) override {
    const auto turn = [&](TensorView x, TensorView weight) {
      if (!weight.empty()) rms_norm(x, x, weight, args.norm_eps, args.norm_offset, stream);
      if (!args.cos_sin.empty()) rope(x, args.positions, args.cos_sin, args.style, stream);
    };
    turn(args.q, args.q_norm);
    turn(args.k, args.k_norm);
    kv_write(args.k_cache, args.v_cache, args.k, args.v, args.slots, args.cache_scale, stream);
  }

 private:
  static TensorView rounded(TensorView x, std::vector<float>& rows) {
    const auto at = x.as<float, 3>();
    for (std::int64_t t = 0; t < x.extent(0); ++t)
      for (std::int64_t h = 0; h < x.extent(1); ++h)
        for (std::int64_t i = 0; i < x.extent(2); ++i)
          rows.push_back(static_cast<float>(fp8_e4m3(at(t, h, i))));
    return {rows.data(), DType::f32, {x.extent(0), x.extent(1), x.extent(2)}};
  }
};

// Logits of the cases' prompts in chunks, and of some of the reference's tokens behind them.
std::vector<float> logits_of(const std::filesystem::path& folder, const Golden& golden, Ops& ops,
                             DType cache_dtype) {
  const ModelConfig config = read_model_config(folder);
  const auto device = make_cpu_device();
  const auto model = load_model(config, folder, *device, ops.traits(), {.dtype = DType::f32});
  DirectRunner runner(*model, *device, ops, {.cache_dtype = cache_dtype});
  std::vector<float> logits;
  const auto feed = [&](int request, std::span<const TokenId> tokens) {
    const auto part = runner.step({{request, {tokens.begin(), tokens.end()}}});
    logits.insert(logits.end(), part.begin(), part.end());
  };
  for (const GoldenCase& c : golden.cases) {
    const int request = runner.add_request(static_cast<int>(c.prompt.size()));
    const std::span<const TokenId> prompt(c.prompt);
    constexpr std::size_t kChunk = 50;
    for (std::size_t at = 0; at < prompt.size(); at += kChunk)
      feed(request, prompt.subspan(at, std::min(kChunk, prompt.size() - at)));
    for (std::size_t i = 0; i < std::min<std::size_t>(4, c.greedy.size()); ++i)
      feed(request, std::span(c.greedy).subspan(i, 1));
    runner.finish(request);
  }
  return logits;
}

TEST_CASE("over an fp8 cache a model computes what it does over rounded floats",
          "[model][golden][fp8]") {
  for (const std::filesystem::path& folder : golden_models()) {
    INFO(folder.string());
    const Golden golden = read_golden(folder);
    const auto ops = make_cpu_ops({.threads = 2});
    RoundingOps rounding;
    const auto over_fp8 = logits_of(folder, golden, *ops, DType::fp8_e4m3);
    const bool is_as_rounded = over_fp8 == logits_of(folder, golden, rounding, DType::f32);
    const bool is_as_unrounded = over_fp8 == logits_of(folder, golden, *ops, DType::f32);
    CHECK(is_as_rounded);  // bools: the logits of a failure would take minutes to be printed
    CHECK_FALSE(is_as_unrounded);
  }
}

}  // namespace
}  // namespace quire
