// Recurrent states in the order of vLLM's blocks, and how such blocks share the memory.

#include "engine/kv_transfer/blocks/state_layout.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "engine/kv_transfer/blocks/shape.h"

namespace quire::test {
namespace {

using Numbers = std::vector<std::uint16_t>;

// Two rows of six channels, two heads of 2 × 3.
KvStateGeometry small(StateForm form) {
  return {.form = form,
          .conv_rows = 2,
          .conv_channels = 6,
          .conv_element_bytes = 2,
          .heads = 2,
          .head_rows = 2,
          .head_columns = 3,
          .element_bytes = 2};
}

KvLayerGeometry state_layer(const char* name, int conv_rows = 3) {
  KvLayerGeometry layer{.name = name, .kind = KvKind::mamba};
  layer.state = {.form = StateForm::delta_net,
                 .conv_rows = conv_rows,
                 .conv_channels = 128,
                 .conv_element_bytes = 4,
                 .heads = 4,
                 .head_rows = 16,
                 .head_columns = 16,
                 .element_bytes = 4};
  layer.row_bytes = layer.state.conv_bytes() + 4 * 16 * 16 * 4;
  return layer;
}

KvGeometry hybrid() {
  KvGeometry geometry;
  for (const char* name : {"layers.0", "layers.1", "layers.2"})
    geometry.layers.push_back(state_layer(name));
  geometry.layers.push_back({.name = "layers.3",
                             .dtype = "float32",
                             .heads = 2,
                             .head_size = 16,
                             .planes = 2,
                             .row_bytes = 128,
                             .block_size = 16});
  return geometry;
}

Numbers in_block(StateForm form, const Numbers& kept) {
  Numbers block(kept.size());
  state_to_block(small(form), std::as_bytes(std::span(kept)),
                 std::as_writable_bytes(std::span(block)));
  return block;
}

}  // namespace

TEST_CASE("of a channel the rows stand together, then the heads", "[kv_transfer][states]") {
  Numbers kept(24);
  std::iota(kept.begin(), kept.end(), std::uint16_t{0});
  // Rows 0–5 and 6–11; heads 12–17 and 18–23.
  CHECK(in_block(StateForm::mamba2, kept) == Numbers{0,  6,  1,  7,  2,  8,  3,  9,
                                                     4,  10, 5,  11, 12, 13, 14, 15,
                                                     16, 17, 18, 19, 20, 21, 22, 23});
  CHECK(in_block(StateForm::delta_net, kept) == Numbers{0,  6,  1,  7,  2,  8,  3,  9,
                                                        4,  10, 5,  11, 12, 15, 13, 16,
                                                        14, 17, 18, 21, 19, 22, 20, 23});
  for (const StateForm form : {StateForm::mamba2, StateForm::delta_net}) {
    const Numbers block = in_block(form, kept);
    Numbers back(kept.size());
    block_to_state(small(form), std::as_bytes(std::span(block)),
                   std::as_writable_bytes(std::span(back)));
    CHECK(back == kept);
  }
}

TEST_CASE("ranks share a state by its projections", "[kv_transfer][states]") {
  const KvStateGeometry state = state_layer("layers.0").state;
  const StateBytes bytes = state_bytes(state);
  CHECK(bytes.projections == std::vector<std::int64_t>{32 * 12, 32 * 12, 64 * 12});
  CHECK(bytes.conv() == state.conv_bytes());
  CHECK(bytes.rest == 4096);
  CHECK(divides(state, 1));
  CHECK(divides(state, 4));
  CHECK_FALSE(divides(state, 3));
  CHECK_FALSE(divides(state, 8));  // of four heads
}

// Rows 0–7 and 8–15 of channels x (0–3), B (4, 5) and C (6, 7); heads 16–19 and 20–23.
TEST_CASE("a rank's part of a state is its channels and its heads, and all parts make it whole",
          "[kv_transfer][states]") {
  const KvStateGeometry state{.form = StateForm::mamba2,
                              .conv_rows = 2,
                              .conv_channels = 8,
                              .conv_element_bytes = 2,
                              .heads = 2,
                              .head_rows = 2,
                              .head_columns = 2,
                              .element_bytes = 2};
  Numbers kept(24);
  std::iota(kept.begin(), kept.end(), std::uint16_t{0});
  const auto bytes = std::as_bytes(std::span(kept));
  Numbers blocks(2 * 13, 99);  // each with a number that fills it up
  const auto halves = std::as_writable_bytes(std::span(blocks));
  state_to_rank(state, bytes, 0, 2, halves.first(26));
  state_to_rank(state, bytes, 1, 2, halves.subspan(26));
  CHECK(blocks == Numbers{0, 8,  1, 9,  4, 12, 6, 14, 16, 17, 18, 19, 0,  //
                          2, 10, 3, 11, 5, 13, 7, 15, 20, 21, 22, 23, 0});
  Numbers back(24);
  ranks_to_state(state, halves, 2, std::as_writable_bytes(std::span(back)));
  CHECK(back == kept);
}

TEST_CASE("a block that is named is as many of the kernel's as a state fills",
          "[kv_transfer][states]") {
  const KvGeometry geometry = hybrid();
  const BlockShape shape = block_shape(geometry, block_regions(std::vector<int>{0, 1, 2, 3}), 16);
  CHECK(shape.region_bytes == std::vector<std::int64_t>{4096});
  CHECK(shape.ratio == 2);  // 5632 bytes
  CHECK(shape.largest == 5632);
  // Regions of states alone are cut as the others.
  const BlockShape wide = block_shape(geometry, block_regions(std::vector<int>{0, 0, 0, 1}), 16);
  CHECK(wide.region_bytes == std::vector<std::int64_t>{4096, 4096, 4096});
  CHECK(wide.kernel_bytes() == 3 * 4096);
}

TEST_CASE("states that cannot travel in blocks are refused by their layer",
          "[kv_transfer][states]") {
  check_block_geometry("nixl", hybrid(), true);
  KvGeometry mixed = hybrid();
  mixed.layers[1] = state_layer("layers.1", 4);
  CHECK_THROWS_WITH(check_block_geometry("nixl", mixed, true),
                    Catch::Contains("several sizes") && Catch::Contains("layers.1"));
  check_block_geometry("mooncake", mixed, false);
  mixed = hybrid();
  for (KvLayerGeometry& layer : mixed.layers) layer.state = {};
  CHECK_THROWS_WITH(check_block_geometry("nixl", mixed, true), Catch::Contains("of this form"));
}

}  // namespace quire::test
