// Attention over latents, whose front is the values.

#include <catch2/catch.hpp>

#include "tests/ops/attention_case.h"

namespace quire::test {
namespace {

const auto kF32 = DType::f32, kBf16 = DType::bf16, kF16 = DType::f16, kFp8 = DType::fp8_e4m3;

}  // namespace

TEST_CASE("latent attention reads its values from the front of its keys", "[ops][attention][mla]") {
  const auto mla = [](const char* name, DType dtype, std::int64_t heads, std::int64_t latent,
                      std::int64_t rope, std::vector<AttentionRequest> requests) {
    return AttentionCase{name,   dtype, dtype, heads, 1,     latent + rope,
                         latent, 16,    0,     0.f,   false, std::move(requests)};
  };
  const auto fp8 = [](AttentionCase c, float scale) {
    c.cache_dtype = kFp8;
    c.scale = {scale, scale};
    return c;
  };
  const auto wide = [](AttentionCase c, int range) {
    c.range = range;
    return c;
  };
  const AttentionCase c = GENERATE_COPY(from_range(std::vector<AttentionCase>{
      mla("f32", kF32, 6, 32, 8, {{0, 50}, {77, 1}, {20, 5}}),
      mla("bf16", kBf16, 6, 32, 8, {{0, 50}, {77, 1}, {20, 5}}),
      mla("as models have it", kBf16, 20, 512, 64, {{0, 9}, {40, 1}, {5, 0}, {30, 3}}),
      mla("as models have it, f16", kF16, 3, 512, 64, {{33, 4}}),
      mla("as models have it, f32", kF32, 2, 512, 64, {{0, 3}, {20, 1}}),
      mla("decode of a long context", kBf16, 16, 512, 64, {{700, 1}, {0, 1}, {63, 1}}),
      mla("more heads than a block has rows", kBf16, 72, 512, 64, {{0, 1}, {90, 1}, {0, 0}}),
      mla("a prompt behind a long context", kF16, 33, 512, 64, {{420, 9}}),
      mla("drafts behind long contexts", kBf16, 40, 512, 64,
          {{600, 4}, {0, 1}, {300, 2}, {5, 0}, {900, 3}, {3, 1}}),
      mla("one long context among many short ones", kF16, 5, 512, 64, one_among(40, {1500, 1})),
      mla("beside prompts", kBf16, 16, 512, 64, {{0, 40}, {500, 1}, {200, 30}, {9, 20}, {30, 5}}),
      fp8(mla("fp8, beside prompts", kBf16, 16, 512, 64, {{500, 3}, {0, 21}, {63, 1}}), .8f),
      fp8(mla("fp8", kF32, 6, 32, 8, {{0, 50}, {77, 1}, {20, 5}}), .7f),
      fp8(mla("fp8 as models have it", kBf16, 20, 512, 64, {{0, 9}, {40, 1}, {30, 3}}), 1.4f),
      fp8(mla("fp8 as models have it, f16", kF16, 3, 512, 64, {{33, 4}}), .3f),
      fp8(mla("fp8, decode of a long context", kBf16, 16, 512, 64, {{700, 1}, {63, 1}}), .6f),
      wide(fp8(mla("fp8, queries beyond f16", kBf16, 5, 512, 64, {{70, 2}, {9, 1}}), .6f), 100),
  }));
  INFO(c.name);
  const AttentionData data(c, 4, /*shared_cache=*/true);
  const std::vector<double> want = data.reference();
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const HostTensor got = data.run_mla(run);
    check_close(got, want);
    CHECK(same_bits(data.run_mla(run, 1 << 14), got));
  }
}

}  // namespace quire::test
