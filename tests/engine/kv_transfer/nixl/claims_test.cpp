// What requests say of a peer over NIXL is theirs: it costs the peer little, and others nothing.

#include <limits>

#include "tests/engine/kv_transfer/nixl/ends.h"
#include "tests/engine/kv_transfer/nixl/stranger.h"

namespace quire::test {

TEST_CASE("numbers of registrations that requests make up cost a peer few questions", "[nixl]") {
  if (!has_nixl()) return;
  NixlEnds ends;
  NixlStranger stranger(nixl_thread_options(ends.geometry).self);
  ends.source = stranger.source("r");
  ends.source.pushed = false;
  ends.source.blocks = {{0}};  // refused once the peer is ready to be read
  const auto loss_of = [&](std::uint64_t generation) {
    ends.source.prefill.generation = generation;
    return ends.fetch(10).loss;
  };
  CHECK(loss_of(3) == KvLossReason::refused);
  REQUIRE(stranger.num_asked() == 1);
  for (std::uint64_t made_up = 4; made_up < 64; ++made_up) {
    loss_of(made_up);
    CHECK(loss_of(3) == KvLossReason::refused);
  }
  CHECK(loss_of(std::numeric_limits<std::int64_t>::max()) == KvLossReason::expired);  // no question
  CHECK(stranger.num_asked() < 30);
}

TEST_CASE("memory that was registered again is read anew over NIXL, and not for what was before",
          "[nixl]") {
  if (!has_nixl()) return;
  NixlEnds ends;
  NixlStranger stranger(nixl_thread_options(ends.geometry).self);
  ends.source = stranger.source("r");
  ends.source.pushed = false;
  ends.source.blocks = {{0}};
  const auto loss_of = [&](std::uint64_t generation) {
    ends.source.prefill.generation = generation;
    return ends.fetch(10).loss;
  };
  CHECK(loss_of(1) == KvLossReason::refused);
  CHECK(loss_of(std::numeric_limits<std::int64_t>::max()) == KvLossReason::refused);
  stranger.register_again();
  CHECK(loss_of(2) == KvLossReason::refused);
  CHECK(stranger.num_asked() == 4);  // first, twice again, and all that it says
  CHECK(loss_of(1) == KvLossReason::expired);
  CHECK(stranger.num_asked() == 4);
}

// Their blocks are as large whatever the number of ranks.
TEST_CASE("a peer of latents is not asked for more ranks than have answered", "[nixl]") {
  if (!has_nixl()) return;
  KvGeometry geometry{.model_fingerprint = "f", .layers = {}};
  KvSpec spec;
  spec.kind = KvKind::mla;
  spec.dtype = DType::bf16;
  spec.num_kv_heads = 1;
  spec.head_size = 64;
  for (int i = 0; i < 4; ++i)
    geometry.layers.push_back(
        layer_geometry({"model.layers." + std::to_string(i) + ".self_attn", spec}, 16));
  NixlEnds ends(geometry);
  NixlStranger stranger(nixl_thread_options(ends.geometry).self);
  ends.source = stranger.source("r");
  ends.source.pushed = false;
  ends.source.blocks = {{0}};
  CHECK(ends.fetch(10).loss == KvLossReason::refused);  // of block 0
  REQUIRE(stranger.num_asked() == 1);
  ends.source.tensor_ranks = 2;
  const KvFetched fetched = ends.fetch(10);
  CHECK(fetched.loss == KvLossReason::incompatible);
  CHECK_THAT(fetched.detail, Catch::Contains("1 of the same engine have answered"));
  CHECK(stranger.num_asked() == 1);
}

}  // namespace quire::test
