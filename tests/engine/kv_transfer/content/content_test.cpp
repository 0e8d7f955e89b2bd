// The order in which prefills travel, and the checks on what may.

#include <catch2/catch.hpp>
#include <random>

#include "base/error.h"
#include "engine/kv_transfer/content/checksum.h"
#include "engine/kv_transfer/content/content.h"

namespace quire::test {
namespace {

KvGeometry mixed_geometry(int block_size) {
  KvGeometry geometry{.model_fingerprint = "f", .layers = {}};
  const auto layer = [&](const char* name, KvSpec spec) {
    geometry.layers.push_back(layer_geometry({name, spec}, block_size));
  };
  KvSpec full;
  full.num_kv_heads = 2;
  full.head_size = 8;
  layer("full", full);
  KvSpec window = full;
  window.kind = KvKind::sliding_window;
  window.sliding_window = 20;
  layer("window", window);
  KvSpec chunk = full;
  chunk.kind = KvKind::chunked_local;
  chunk.attention_chunk_size = 32;
  layer("chunk", chunk);
  KvSpec latent = full;
  latent.kind = KvKind::mla;
  latent.num_kv_heads = 1;
  latent.head_size = 24;
  layer("latent", latent);
  KvSpec state;
  state.kind = KvKind::mamba;
  state.states = {{{3, 8}, DType::bf16}, {{2, 4, 4}, DType::f32}};
  layer("state", state);
  return geometry;
}

}  // namespace

TEST_CASE("each layer keeps what the next tokens read", "[kv_transfer]") {
  const KvGeometry geometry = mixed_geometry(16);
  CHECK(first_kept_token(geometry.layers[0], 100) == 0);
  CHECK(first_kept_token(geometry.layers[1], 100) == 80);  // 100 − 20, at a block's begin
  CHECK(first_kept_token(geometry.layers[1], 99) == 64);
  CHECK(first_kept_token(geometry.layers[1], 5) == 0);
  CHECK(first_kept_token(geometry.layers[2], 100) == 96);  // the chunk of token 99
  CHECK(first_kept_token(geometry.layers[2], 96) == 64);   // that of token 95
  CHECK(first_kept_token(geometry.layers[4], 100) == 99);
}

TEST_CASE("a content has planes of rows, one behind the other", "[kv_transfer]") {
  const KvContent content = kv_content(mixed_geometry(16), 50);
  REQUIRE(content.strips.size() == 2 + 2 + 2 + 1 + 1);
  std::int64_t at = 0;
  for (const KvStrip& strip : content.strips) {
    CHECK(strip.offset == at);
    at += strip.bytes();
  }
  CHECK(content.bytes == at);
  CHECK(content.strips[0].bytes() == 50 * 2 * 8 * 2);  // bf16
  CHECK(content.strips[6].bytes() == 50 * 24 * 2);
  CHECK(content.strips[7].bytes() == 3 * 8 * 2 + 2 * 4 * 4 * 4);
}

TEST_CASE("the pieces of a fetch cover it once, in order and in bounds", "[kv_transfer]") {
  KvGeometry geometry = mixed_geometry(16);
  geometry.layers[0].row_bytes = 40'000;  // more than a piece
  for (int num_tokens : {1, 31, 32, 33, 100, 1000}) {
    for (int from = 0; from <= num_tokens; from += 1 + num_tokens / 7) {
      const KvContent kept = kv_content(geometry, num_tokens);
      const KvContent wanted = kv_content(geometry, num_tokens, from);
      std::int64_t at = 0;
      for (const KvPiece& piece : kv_pieces(kept, wanted)) {
        CHECK(piece.target == at);
        CHECK((piece.bytes > 0 && piece.bytes <= kPieceBytes));
        CHECK((piece.source >= 0 && piece.source + piece.bytes <= kept.bytes));
        at += piece.bytes;
      }
      CHECK(at == wanted.bytes);
    }
  }
}

TEST_CASE("parts of a content are its rows, each once, and no larger than asked", "[kv_transfer]") {
  const KvContent whole = kv_content(mixed_geometry(16), 133, 20);
  for (const std::int64_t most : {std::int64_t{1}, std::int64_t{700}, std::int64_t{1} << 40}) {
    std::size_t strip = 0;
    int rows = 0;  // of it, so far
    for (const KvContent& part : kv_parts(whole, most)) {
      CHECK(part.num_tokens == whole.num_tokens);
      std::int64_t bytes = 0;
      int rows_of_part = 0;
      for (const KvStrip& own : part.strips) {
        while (rows == whole.strips[strip].rows) ++strip, rows = 0;
        const KvStrip& of = whole.strips[strip];
        CHECK((own.layer == of.layer && own.plane == of.plane && own.row_bytes == of.row_bytes));
        CHECK(own.first == of.first + rows);
        CHECK(own.offset == of.offset + rows * of.row_bytes);
        CHECK(own.rows > 0);
        rows += own.rows;
        rows_of_part += own.rows;
        bytes += own.bytes();
      }
      CHECK(bytes == part.bytes);
      CHECK((bytes <= most || rows_of_part == 1));
    }
    while (strip + 1 < whole.strips.size() && rows == whole.strips[strip].rows) ++strip, rows = 0;
    CHECK(strip + 1 == whole.strips.size());
    CHECK(rows == whole.strips.back().rows);
  }
}

TEST_CASE("engines that store something else are told which field differs", "[kv_transfer]") {
  const KvGeometry ours = mixed_geometry(16);
  CHECK(geometry_difference(ours, mixed_geometry(64)) == "");
  const auto said = [&](auto change) {
    KvGeometry theirs = ours;
    change(theirs);
    return geometry_difference(ours, theirs);
  };
  using Catch::Contains;
  CHECK_THAT(said([](KvGeometry& g) { g.model_fingerprint = "g"; }), Contains("model_fingerprint"));
  CHECK_THAT(said([](KvGeometry& g) { g.layers.pop_back(); }), Contains("5 layers"));
  CHECK_THAT(said([](KvGeometry& g) { g.layers[1].name = "x"; }), Contains("layer window"));
  CHECK_THAT(said([](KvGeometry& g) { g.layers[0].dtype = "fp8"; }), Contains("kv_cache_dtype"));
  CHECK_THAT(said([](KvGeometry& g) { g.layers[0].heads = 4; }), Contains("num_kv_heads"));
  CHECK_THAT(said([](KvGeometry& g) { g.layers[0].head_size = 4; }), Contains("head_size"));
  CHECK_THAT(said([](KvGeometry& g) { g.layers[4].row_bytes = 4; }), Contains("row_bytes"));
  CHECK_THAT(said([](KvGeometry& g) { g.layers[1].window = 4; }), Contains("sliding_window"));
  CHECK_THAT(said([](KvGeometry& g) { g.layers[2].chunk = 4; }), Contains("attention_chunk_size"));
  CHECK_THAT(said([](KvGeometry& g) { g.layers[2].planes = 1; }), Contains("planes"));
  CHECK_THAT(said([](KvGeometry& g) { g.layers[2].kind = KvKind::full; }), Contains("kind"));
  CHECK_THAT(said([](KvGeometry& g) { g.layers[0].key_scale = 2; }), Contains("k_scale"));
  CHECK_THAT(said([](KvGeometry& g) { g.layers[0].value_scale = 2; }), Contains("v_scale"));
  CHECK_THAT(said([](KvGeometry& g) { g.layers[4].state.conv_rows = 9; }), Contains("state_shape"));
  CHECK_THAT(said([](KvGeometry& g) { g.layers[2].block_size = 0; }), Contains("block_size"));
}

TEST_CASE("what cannot travel is refused by layer", "[kv_transfer]") {
  KvSpec packed;
  packed.kind = KvKind::mla;
  packed.mla_format = MlaFormat::fp8_ds_mla;
  CHECK_THROWS_WITH(layer_geometry({"model.layers.3", packed}, 16),
                    Catch::Contains("model.layers.3"));
}

TEST_CASE("a checksum is the same for both versions of a pair, and bit by bit", "[kv_transfer]") {
  std::vector<std::byte> bytes(1000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i % 251);
  CHECK(kv_checksum(bytes, 7) == 0x2d95a49bd33c9577);
  const std::span all(bytes);
  for (const std::size_t cut : {0, 32, 64, 992}) {
    KvSum sum(7);
    sum.add(all.first(cut));
    CHECK(sum.end(all.subspan(cut)) == kv_checksum(bytes, 7));
    std::vector<std::byte> copied(bytes.size());
    KvSum copying(7);
    copying.copy(all.first(cut), copied.data());
    CHECK(copying.end(all.subspan(cut)) == kv_checksum(bytes, 7));
    CHECK(std::equal(copied.begin(), copied.begin() + static_cast<std::ptrdiff_t>(cut),
                     bytes.begin()));
  }
}

TEST_CASE("several lines carry each piece once", "[kv_transfer]") {
  const std::vector<KvPiece> pieces(7);
  for (const int parts : {1, 2, 3, 7, 9, 64}) {
    std::size_t next = 0;
    for (int part = 0; part < parts; ++part) {
      const auto share = kv_part(pieces, part, parts);
      CHECK(share.data() == pieces.data() + next);
      next += share.size();
    }
    CHECK(next == pieces.size());
  }
}

TEST_CASE("a checksum tells any damage apart", "[kv_transfer]") {
  std::mt19937_64 random(5);
  for (std::size_t size : {0u, 1u, 7u, 8u, 31u, 32u, 33u, 1000u}) {
    std::vector<std::byte> bytes(size);
    for (std::byte& one : bytes) one = static_cast<std::byte>(random());
    const std::uint64_t sum = kv_checksum(bytes);
    CHECK(kv_checksum(bytes) == sum);
    CHECK(kv_checksum(bytes, 1) != sum);
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
      CHECK(kv_checksum(bytes) != sum);
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    }
    bytes.push_back(std::byte{0});
    CHECK(kv_checksum(bytes) != sum);
  }
}

}  // namespace quire::test
