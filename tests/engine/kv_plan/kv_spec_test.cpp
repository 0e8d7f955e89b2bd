#include "model/kv_spec.h"

#include <catch2/catch.hpp>

namespace quire {
namespace {

KvSpec full(int block_size, int heads, int head_size, DType dtype = DType::bf16) {
  return {.kind = KvKind::full,
          .block_size = block_size,
          .num_kv_heads = heads,
          .head_size = head_size,
          .dtype = dtype};
}

KvSpec latent(int block_size, int head_size) {
  return {.kind = KvKind::mla, .block_size = block_size, .num_kv_heads = 1, .head_size = head_size};
}

KvSpec windowed(int block_size, int window) {
  KvSpec spec = full(block_size, 2, 64);
  spec.kind = KvKind::sliding_window;
  spec.sliding_window = window;
  return spec;
}

}  // namespace

TEST_CASE("Page bytes of attention, latents and states") {
  CHECK(page_bytes(full(16, 2, 64, DType::f32)) == 16384);
  CHECK(page_bytes(latent(64, 576)) == 73728);

  KvSpec packed = latent(64, 576);
  packed.mla_format = MlaFormat::fp8_ds_mla;
  CHECK(page_bytes(packed) == 41984);

  KvSpec nibbles = full(16, 8, 128, DType::u8);
  nibbles.quant = KvQuant::nvfp4;
  CHECK(page_bytes(nibbles) == 18432);

  KvSpec scaled = full(16, 8, 128, DType::i8);
  scaled.quant = KvQuant::int8_per_token_head;
  CHECK(page_bytes(scaled) == 33792);

  KvSpec narrow_values = full(16, 2, 192);
  narrow_values.head_size_v = 128;
  CHECK(page_bytes(narrow_values) == 16 * 2 * (192 + 128) * 2);

  const KvSpec state{.kind = KvKind::mamba,
                     .states = {{{2, 512}, DType::f32}, {{3, 32, 32}, DType::f32}}};
  CHECK(page_bytes(state) == 16384);
}

TEST_CASE("Compressed latents store fewer tokens and are aligned") {
  KvSpec spec = latent(256, 512);
  spec.mla_format = MlaFormat::fp8_ds_mla;
  spec.mla_version = MlaVersion::deepseek_v4;
  spec.compress_ratio = 4;
  spec.alignment = 576;
  CHECK(storage_block_size(spec) == 64);
  CHECK(unpadded_page_bytes(spec) == 37376);
  CHECK(page_bytes(spec) == 37440);
}

TEST_CASE("The most blocks that a request holds") {
  const auto blocks = [](const KvSpec& spec, std::int64_t length, std::int64_t step) {
    return max_blocks_per_request(spec, {.max_model_len = length, .max_num_batched_tokens = step});
  };
  CHECK(blocks(full(16, 2, 64), 16384, 1024) == 1024);
  CHECK(blocks(full(16, 2, 64), 513, 1024) == 33);
  CHECK(blocks(windowed(16, 1024), 16384, 1024) == 129);
  CHECK(blocks(windowed(16, 512), 8192, 2048) == 161);
  CHECK(blocks(windowed(4, 4), 100, 4) == 3);
  CHECK(blocks(windowed(16, 1024), 4096, 8192) == 257);

  KvSpec chunked = full(16, 2, 64);
  chunked.kind = KvKind::chunked_local;
  chunked.attention_chunk_size = 8192;
  CHECK(blocks(chunked, 131072, 8192) == 1024);
  CHECK(blocks(chunked, 4096, 2048) == 256);
}

TEST_CASE("Blocks of a recurrent state follow the cache mode") {
  const KvSpec state{.kind = KvKind::mamba, .block_size = 64, .num_speculative_blocks = 2};
  const auto blocks = [&](StateCacheMode mode) {
    return max_blocks_per_request(state, {.max_model_len = 640, .state_cache_mode = mode});
  };
  CHECK(blocks(StateCacheMode::none) == 3);
  CHECK(blocks(StateCacheMode::align) == 4);
  CHECK(blocks(StateCacheMode::all) == 12);
}

TEST_CASE("Context parallelism divides the tokens of a rank") {
  const KvLimits limits{.max_model_len = 1025, .context_parallel = 2};
  CHECK(max_blocks_per_request(full(16, 2, 64), limits) == 33);
}

TEST_CASE("Layers merge when one table and one view serve all") {
  const auto merged = [](std::vector<KvSpec> layers) { return merge(layers); };
  CHECK(merged({full(16, 2, 64), full(16, 2, 64)}).spec == full(16, 2, 64));
  CHECK_FALSE(merged({full(16, 2, 64), full(16, 2, 128)}).spec);
  CHECK_FALSE(merged({full(16, 2, 64), latent(16, 576)}).spec);
  CHECK_FALSE(merged({full(16, 2, 64), windowed(16, 8)}).spec);

  KvSpec window_1 = full(16, 2, 64), window_2 = full(16, 2, 64);
  window_1.sliding_window = 1;
  window_2.sliding_window = 2;
  CHECK(merged({window_1, full(16, 2, 64)}).spec == window_1);
  CHECK_FALSE(merged({window_1, window_2}).spec);
  CHECK(merged({window_1, window_2}).window_conflict);

  KvSpec packed = latent(64, 576);
  packed.mla_format = MlaFormat::fp8_ds_mla;
  CHECK_FALSE(merged({packed, latent(64, 576)}).spec);
  // The page must hold the larger of the two, whichever comes first.
  CHECK(merged({latent(16, 132), latent(16, 576)}).spec == latent(16, 576));
}

}  // namespace quire
