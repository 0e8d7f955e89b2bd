#include "engine/runner/graph_cache.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "cpu/cpu_ops.h"
#include "engine/capture_sizes.h"
#include "engine/kv_plan/groups.h"

namespace quire {
namespace {

using Sizes = std::vector<int>;

class CountingGraph final : public Graph {
 public:
  explicit CountingGraph(int& count) : count_(count) {}
  void replay(StreamRef) override { ++count_; }

 private:
  int& count_;
};

KvGroup group_of(KvKind kind) {
  return uniform_group({"layer"},
                       {.kind = kind, .block_size = 16, .num_kv_heads = 1, .head_size = 16});
}

TEST_CASE("sizes double, then grow in steps, and end with the largest batch", "[engine][runner]") {
  CHECK(capture_sizes_up_to(1) == Sizes{1});
  CHECK(capture_sizes_up_to(6) == Sizes{1, 2, 4, 6});
  CHECK(capture_sizes_up_to(32) == Sizes{1, 2, 4, 8, 16, 24, 32});
  const Sizes large = capture_sizes_up_to(300);
  CHECK(Sizes(large.end() - 4, large.end()) == Sizes{256, 272, 288, 300});

  CHECK(mixed_capture_sizes_up_to(1) == Sizes{1});
  CHECK(mixed_capture_sizes_up_to(7) == Sizes{2, 4, 7});
  CHECK(mixed_capture_sizes_up_to(kMostMixed) ==
        Sizes{2, 4, 8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256});
}

TEST_CASE("a step takes the smallest graph that holds it", "[engine][runner]") {
  int replays_of_2 = 0, replays_of_8 = 0;
  GraphCache graphs;
  int replays_with_drafts = 0;
  CHECK(graphs.shape_for(1, 0).num_rows == 0);
  graphs.add({.num_rows = 2}, std::make_unique<CountingGraph>(replays_of_2));
  graphs.add({.num_rows = 8}, std::make_unique<CountingGraph>(replays_of_8));
  CHECK(graphs.shape_for(1, 3).num_rows == 0);
  graphs.add({.num_drafts = 3, .num_rows = 4},
             std::make_unique<CountingGraph>(replays_with_drafts));
  CHECK(graphs.shape_for(1, 0).num_rows == 2);
  CHECK(graphs.shape_for(2, 0).num_rows == 2);
  CHECK(graphs.shape_for(3, 0).num_rows == 8);
  CHECK(graphs.shape_for(9, 0).num_rows == 0);
  CHECK(graphs.shape_for(1, 3) == GraphShape{.num_drafts = 3, .num_rows = 4});
  CHECK(graphs.shape_for(5, 3).num_rows == 0);
  CHECK(graphs.shape_for(1, 2).num_rows == 0);

  int mixed_replays = 0;
  CHECK(graphs.mixed_shape_for(1, 1).num_rows == 0);
  CHECK(graphs.mixed_sizes().empty());
  graphs.add(mixed_shape(16, 8), std::make_unique<CountingGraph>(mixed_replays));
  CHECK(graphs.mixed_shape_for(8, 16) == GraphShape{.num_tokens = 16, .num_rows = 9});
  CHECK(graphs.mixed_shape_for(9, 16).num_rows == 0);  // no row would be left for the padding
  CHECK(graphs.mixed_shape_for(1, 17).num_rows == 0);
  graphs.add(mixed_shape(32, 8), nullptr);
  graphs.add(mixed_shape(64, 8), std::make_unique<CountingGraph>(mixed_replays));
  CHECK(graphs.mixed_shape_for(1, 17).num_rows == 0);  // not that of 64
  CHECK(graphs.mixed_shape_for(1, 33).num_tokens == 64);
  CHECK(graphs.mixed_sizes() == Sizes{16, 64});
  CHECK(mixed_shape(256, 1000).num_rows == kMostMixedRows + 1);
  CHECK(graphs.shape_for(1, 4).num_rows == 0);  // nor one for rows that all have drafts
  const auto device = make_cpu_device();
  graphs.replay(graphs.mixed_shape_for(2, 3), device->stream());
  CHECK(mixed_replays == 1);
  graphs.replay(graphs.shape_for(3, 0), device->stream());
  CHECK(replays_of_2 == 0);
  CHECK(replays_of_8 == 1);
  CHECK(replays_with_drafts == 0);
  CHECK(graphs.num_replays() == 2);
}

// Operators with graphs for paged attention, mixed ones over bf16 alone, and if asked for states.
class GraphTraits final : public OpsTraits {
 public:
  explicit GraphTraits(GraphSupport states) : states_(states) {}
  GraphSupport graph_support(const CacheForm& form) const override {
    if (form.kind == CacheKind::state) return states_;
    if (form.kind == CacheKind::latent) return GraphSupport::never;
    return form.dtype == DType::bf16 ? GraphSupport::always : GraphSupport::uniform;
  }
  std::size_t moe_workspace_bytes(int, const MoeShape&) const override { return 0; }
  std::size_t linear_workspace_bytes(std::int64_t, const Weight&, DType) const override {
    return 0;
  }
  std::size_t scratch_bytes() const override { return 0; }
  std::size_t collectives_bytes() const override { return 0; }

 private:
  GraphSupport states_;
};

TEST_CASE("the groups' weakest operators decide about graphs", "[engine][runner]") {
  const GraphTraits all(GraphSupport::single_token), paged_only(GraphSupport::never);
  const std::vector<KvGroup> dense{group_of(KvKind::full), group_of(KvKind::sliding_window)};
  const std::vector<KvGroup> hybrid{group_of(KvKind::full), group_of(KvKind::mamba)};
  const GraphLimits limits{.max_num_seqs = 4, .max_tokens = 24};
  CHECK(capture_sizes({}, limits, paged_only, dense)->sizes == Sizes{1, 2, 4});
  CHECK(capture_sizes({}, limits, all, hybrid)->sizes == Sizes{1, 2, 4});
  CHECK(capture_sizes({.capture_sizes = {4, 1, 4}}, limits, all, hybrid)->sizes == Sizes{1, 4});
  CHECK(capture_sizes({.max_capture_size = 3}, limits, all, hybrid)->sizes == Sizes{1, 2, 3});

  CHECK(capture_sizes({}, limits, all, dense)->mixed_sizes == Sizes{2, 4, 8, 16, 24});
  CHECK(capture_sizes({}, limits, all, dense)->keeps_faster);
  CHECK(capture_sizes({}, limits, all, hybrid)->mixed_sizes.empty());  // states have none
  std::vector<KvGroup> of_fp8 = dense;
  of_fp8.back().spec.dtype = DType::fp8_e4m3;
  CHECK(capture_sizes({}, limits, all, of_fp8)->mixed_sizes.empty());
  CHECK(capture_sizes({.only_decode = true}, limits, all, dense)->mixed_sizes.empty());
  CHECK(capture_sizes({.max_capture_size = 10}, limits, all, dense)->mixed_sizes == Sizes{2, 4, 8, 10});
  // Of named ones decode takes as many requests as there can be, a mixed step what it has room for.
  const CaptureSizes named =
      capture_sizes({.capture_sizes = {2, 100, 16}}, limits, all, dense).value();
  CHECK(named.sizes == Sizes{2, 4});
  CHECK(named.mixed_sizes == Sizes{2, 16, 24});
  CHECK(named.count() == 5);
  CHECK_FALSE(named.keeps_faster);

  CHECK(capture_sizes({.enforce_eager = true}, limits, all, dense)->why_none ==
        "GraphConfig::enforce_eager");
  const CaptureSizes none = capture_sizes({}, limits, paged_only, hybrid).value();
  CHECK(none.sizes.empty());
  CHECK(none.why_none.find("mamba") != std::string::npos);
  CHECK(capture_sizes({}, limits, all, {group_of(KvKind::mla)})->sizes.empty());
  CHECK(capture_sizes({.capture_sizes = {1}}, limits, paged_only, hybrid).has_error());

  const Sizes sizes{1, 2, 4};
  CHECK(draft_capture_sizes(sizes, 3, 64, all, dense) == sizes);
  CHECK(draft_capture_sizes(sizes, 3, 8, all, dense) == Sizes{1, 2});
  CHECK(draft_capture_sizes(sizes, 0, 64, all, dense).empty());
  CHECK(draft_capture_sizes(sizes, 3, 64, all, hybrid).empty());  // of one token alone
}

}  // namespace
}  // namespace quire
