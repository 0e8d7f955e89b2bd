#include "engine/scheduler/prefix_finder.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "engine/scheduler/scheduler.h"

namespace quire {
namespace {

using Rows = std::vector<std::int32_t>;

struct Bench {
  explicit Bench(int num_blocks = 2000, bool caching = true) : kv(kv_config(num_blocks, caching)) {}

  static KvCacheConfig kv_config(int num_blocks, bool caching) {
    KvCacheConfig config;
    config.num_blocks = num_blocks;
    config.groups.resize(1);
    config.groups[0].spec.block_size = 16;
    config.max_model_len = 4096;
    config.max_num_batched_tokens = 4096;
    config.scheduler_block_size = config.hash_block_size = 16;
    config.enable_caching = caching;
    return config;
  }
  static SchedulerOptions options() {
    SchedulerOptions options;
    options.max_num_seqs = 32;
    options.max_num_batched_tokens = 4096;
    options.max_model_len = 4096;
    options.most_sharing_tokens = 3;
    return options;
  }

  // Its prompt: so many tokens of each text, in turn, then 20 of its own.
  RequestId add(std::vector<std::pair<int, int>> texts) {
    RequestInit init;
    init.id = RequestId(++last_id);
    for (const auto& [text, count] : texts)
      for (int i = 0; i < count; ++i) init.prompt.push_back(10000 * text + i);
    for (int i = 0; i < 20; ++i)
      init.prompt.push_back(static_cast<TokenId>(1000000 + 100 * last_id) + i);
    init.sampling.max_tokens = 200;
    REQUIRE(scheduler.add(std::move(init)).has_value());
    return RequestId(last_id);
  }
  const BatchPlan& step() {
    const BatchPlan& plan = scheduler.schedule();
    std::vector<TokenId> sampled;
    for (const BatchRow& row : plan.rows) sampled.push_back(row.samples ? 5 : -1);
    scheduler.commit(plan, {.sampled = sampled});
    return plan;
  }
  // Ids of the requests of each prefix, and its tokens.
  std::vector<std::pair<std::vector<std::uint64_t>, int>> shared(const BatchPlan& plan) const {
    std::vector<std::pair<std::vector<std::uint64_t>, int>> all;
    for (const SharedPrefix& prefix : plan.shared_prefixes) {
      auto& [ids, tokens] = all.emplace_back();
      tokens = prefix.num_tokens;
      for (const std::int32_t row : plan.rows_of(prefix))
        ids.push_back(plan.rows[static_cast<std::size_t>(row)].request->id().value);
      std::ranges::sort(ids);
    }
    std::ranges::sort(all);
    return all;
  }

  KvCacheManager kv;
  Scheduler scheduler{options(), kv};
  std::uint64_t last_id = 0;
};

using Shared = std::vector<std::pair<std::vector<std::uint64_t>, int>>;

}  // namespace

TEST_CASE("Rows that decode behind the same blocks share a prefix", "[scheduler][prefixes]") {
  Bench bench;
  bench.add({{1, 530}});
  bench.step();
  for (int i = 0; i < 3; ++i) bench.add({{1, 530}});
  bench.add({{1, 300}});  // parts too early
  bench.add({{2, 600}});
  CHECK(bench.shared(bench.step()).empty());  // prompts
  CHECK(bench.shared(bench.step()) == Shared{{{1, 2, 3, 4}, 512}});
  CHECK(bench.scheduler.stats().shared_prefix_tokens == 3 * 512);
  bench.add({{1, 530}});
  CHECK(bench.shared(bench.step()) == Shared{{{1, 2, 3, 4}, 512}});  // beside the new one's prompt
  CHECK(bench.shared(bench.step()) == Shared{{{1, 2, 3, 4, 7}, 512}});
  bench.scheduler.abort(RequestId(2));
  bench.scheduler.abort(RequestId(3));
  CHECK(bench.shared(bench.step()).empty());  // three are too few
  bench.add({{1, 530}});
  bench.step();
  CHECK(bench.shared(bench.step()) == Shared{{{1, 4, 7, 8}, 512}});
}

TEST_CASE("A step has several prefixes, each as long as is worth most", "[scheduler][prefixes]") {
  Bench bench;
  // Four behind a long text that begins as that of the others does, and two at most behind more.
  bench.add({{1, 640}, {2, 1500}});
  bench.add({{3, 700}});
  bench.step();
  for (int i = 0; i < 3; ++i) bench.add({{1, 640}, {2, 1500}});
  for (int i = 0; i < 5; ++i) bench.add({{1, 640}});
  for (int i = 0; i < 4; ++i) bench.add({{3, 700}});
  bench.step();
  // (9 − 2) · 640 is more than (4 − 2) · 2,048.
  CHECK(bench.shared(bench.step()) ==
        Shared{{{1, 3, 4, 5, 6, 7, 8, 9, 10}, 640}, {{2, 11, 12, 13, 14}, 640}});
  for (int id = 6; id <= 7; ++id) bench.scheduler.abort(RequestId(static_cast<std::uint64_t>(id)));
  // (7 − 2) · 640 is less; the three others are too few for a prefix of their own.
  CHECK(bench.shared(bench.step()) == Shared{{{1, 3, 4, 5}, 2048}, {{2, 11, 12, 13, 14}, 640}});
  bench.add({{1, 640}});
  bench.step();
  CHECK(bench.shared(bench.step()) == Shared{{{1, 3, 4, 5}, 2048},
                                             {{2, 11, 12, 13, 14}, 640},
                                             {{8, 9, 10, 15}, 640}});
}

TEST_CASE("Rows with drafts share a prefix, up to so many", "[scheduler][prefixes]") {
  Bench bench;
  bench.add({{1, 530}});
  bench.step();
  for (int i = 0; i < 4; ++i) bench.add({{1, 530}});
  bench.step();
  const BatchPlan& plan = bench.step();
  REQUIRE(bench.shared(plan) == Shared{{{1, 2, 3, 4, 5}, 512}});
  const std::vector<TokenId> drafts{6, 7, 8};
  for (const BatchRow& row : plan.rows) {
    const auto id = static_cast<std::size_t>(row.request->id().value);
    bench.scheduler.set_drafts(*row.request, std::span(drafts).first(id == 3 ? 3 : id % 3));
  }
  const BatchPlan& next = bench.scheduler.schedule();
  CHECK(std::ranges::count(next.rows, 4, &BatchRow::num_tokens) == 1);
  CHECK(std::ranges::count(next.rows, 3, &BatchRow::num_tokens) > 0);
  CHECK(bench.shared(next) == Shared{{{1, 2, 4, 5}, 512}});
}

TEST_CASE("Texts that are equal but not in the same blocks share nothing",
          "[scheduler][prefixes]") {
  Bench bench(2000, /*caching=*/false);
  for (int i = 0; i < 6; ++i) bench.add({{1, 600}});
  for (int i = 0; i < 3; ++i) CHECK(bench.shared(bench.step()).empty());
}

TEST_CASE("Who was preempted shares again what it then finds", "[scheduler][prefixes]") {
  Bench bench(34 + 5 * 6);  // not enough for six answers
  bench.add({{1, 530}});
  bench.step();
  for (int i = 0; i < 5; ++i) bench.add({{1, 530}});
  int fewest = 6, latest = 0;
  for (int i = 0; i < 150; ++i) {
    const BatchPlan& plan = bench.step();
    for (const SharedPrefix& prefix : plan.shared_prefixes) {
      CHECK(prefix.num_tokens == 512);
      const auto table = [&](std::int32_t row) {
        const auto blocks = bench.kv.table(*plan.rows[static_cast<std::size_t>(row)].request, 0);
        return std::vector<BlockId>(blocks.begin(), blocks.begin() + 32);
      };
      for (const std::int32_t row : plan.rows_of(prefix))
        CHECK(table(row) == table(plan.rows_of(prefix).front()));
      latest = prefix.num_rows;
      fewest = std::min(fewest, latest);
    }
  }
  CHECK(bench.scheduler.stats().preemptions > 0);
  CHECK(fewest < 6);
}

}  // namespace quire
