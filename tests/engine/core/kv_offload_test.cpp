// A pool too small for what it is asked, and what is behind it: the tokens and the hits of a large
// pool.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/error.h"
#include "tests/engine/core/kv_pair.h"
#include "tests/support/golden_folders.h"
#include "tests/support/staged_device.h"

namespace quire::test {
namespace {

using Tokens = std::vector<TokenId>;

constexpr int kConversations = 6, kTurns = 3, kAnswer = 12;

Tokens random_tokens(unsigned seed, int length) {
  std::mt19937 random(seed);
  Tokens tokens(static_cast<std::size_t>(length));
  for (TokenId& token : tokens) token = static_cast<TokenId>(3 + random() % 380);
  return tokens;
}

EngineConfig offload_config(const std::filesystem::path& model) {
  EngineConfig config = kv_config(model);
  config.scheduler.max_num_seqs = 2;
  return config;
}

// As many blocks as one request of the whole context takes, and a few.
EngineConfig small_pool(EngineConfig config, const EngineCore& large) {
  config.cache.num_gpu_blocks_override = large.kv_cache().max_blocks(256) + 3;
  return config;
}

struct Talk {
  std::vector<Tokens> answers;
  std::vector<int> cached;
};

// Conversations take turns, each turn with all that was said before.
Talk talk(SteppedEngine& engine, int first_turn = 0, int num_turns = kTurns) {
  Talk heard;
  for (int turn = first_turn; turn < first_turn + num_turns; ++turn) {
    for (unsigned one = 0; one < kConversations; ++one) {
      Tokens prompt = random_tokens(one, 130);
      for (int before = 0; before < turn; ++before) {
        const Tokens said = random_tokens(1000 * one + static_cast<unsigned>(before), 30);
        prompt.insert(prompt.end(), said.begin(), said.end());
      }
      AddRequest request = greedy_request(prompt, kAnswer);
      request.sampling.ignore_eos = true;
      const RequestOutput& output = engine.finish(request);
      heard.answers.push_back(output.token_ids);
      heard.cached.push_back(output.num_cached_tokens);
    }
  }
  return heard;
}

void check_counts(const EngineStats& stats, const EngineStats& large) {
  CHECK(stats.prefix_cache_hits + stats.external_cache_hits == large.prefix_cache_hits);
  CHECK(stats.prefix_cache_queries == large.prefix_cache_queries);
  CHECK(stats.external_cache_queries == stats.prefix_cache_queries - stats.prefix_cache_hits);
  CHECK(stats.kv_offload.damaged == 0);
  CHECK(stats.late_allocations == 0);
  CHECK(stats.num_free_blocks == stats.num_blocks);
}

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("quire-tier-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::filesystem::path file() const { return path_ / "engine-0.kv"; }
  std::string text() const { return path_.string(); }

 private:
  const std::filesystem::path path_;
};

EngineConfig with_disk(EngineConfig config, const EngineCore& large, const Folder& folder) {
  const auto block = static_cast<std::int64_t>(large.plan().kv.workers.front().pool_bytes_per_block);
  config.kv_offload.host_bytes = 20 * block;
  config.kv_offload.path = folder.text();
  config.kv_offload.path_bytes = std::int64_t{64} << 20;
  return config;
}

}  // namespace

TEST_CASE("a small pool with memory behind it answers and hits as a large one, for every family",
          "[kv_offload]") {
  for (const auto& model : golden_models()) {
    INFO(model);
    SteppedEngine large(offload_config(model));
    EngineConfig config = small_pool(offload_config(model), large.core);
    SteppedEngine alone(config);
    config.kv_offload.host_bytes = std::int64_t{64} << 20;
    SteppedEngine behind(config);
    const Talk expected = talk(large), without = talk(alone), with = talk(behind);
    CHECK(with.answers == expected.answers);
    CHECK(with.cached == expected.cached);
    check_counts(behind.core.stats(), large.core.stats());
    CHECK(alone.core.stats().prefix_cache_hits < large.core.stats().prefix_cache_hits);
    CHECK(behind.core.stats().external_cache_hits > 0);
    const auto& memory = behind.core.ready().memory;
    const auto planned = std::ranges::find(memory, "kv_offload", &MemoryUseInfo::purpose);
    REQUIRE(planned != memory.end());
    CHECK(planned->planned_bytes <= std::int64_t{64} << 20);
    CHECK(planned->planned_bytes > std::int64_t{60} << 20);
  }
}

TEST_CASE("a device with memory of its own gives blocks up and takes them back in order",
          "[kv_offload]") {
  for (const char* name : {"models/quire-tiny", "models/quire-tiny-hybrid"}) {
    INFO(name);
    EngineConfig config = offload_config(name);
    config.deterministic = false;
    SteppedEngine large(config, pretend_backend);
    config = small_pool(config, large.core);
    config.kv_offload.host_bytes = std::int64_t{64} << 20;
    SteppedEngine behind(config, pretend_backend);
    const Talk expected = talk(large), with = talk(behind);
    CHECK(with.answers == expected.answers);
    CHECK(with.cached == expected.cached);
    check_counts(behind.core.stats(), large.core.stats());
    CHECK(behind.core.stats().external_cache_hits > 0);
  }
}

TEST_CASE("what memory has no room for comes back from disk, after a restart too",
          "[kv_offload]") {
  const auto model = golden_models().front();
  const Folder folder;
  SteppedEngine large(offload_config(model));
  const Talk expected = talk(large);
  const EngineConfig config =
      with_disk(small_pool(offload_config(model), large.core), large.core, folder);
  {
    SteppedEngine first(config);
    CHECK(talk(first).answers == expected.answers);
    first.core.offload()->finish_writing();
    CHECK(first.core.stats().kv_offload.read_bytes > 0);
    CHECK(first.core.stats().kv_offload.disk_bytes > 0);
  }
  SECTION("as it was left") {
    SteppedEngine again(config);
    CHECK(talk(again, 0, 1).answers ==
          std::vector<Tokens>(expected.answers.begin(), expected.answers.begin() + kConversations));
    CHECK(again.core.stats().external_cache_hits > 0);
    CHECK(again.core.stats().kv_offload.damaged == 0);
  }
  SECTION("damaged: computed again") {
    {
      std::fstream file(folder.file(), std::ios::in | std::ios::out | std::ios::binary);
      const auto size = static_cast<std::int64_t>(std::filesystem::file_size(folder.file()));
      for (std::int64_t at = 4096 + 2000; at < size; at += 4096) file.seekp(at).put('?');
    }
    SteppedEngine again(config);
    CHECK(talk(again).answers == expected.answers);
    CHECK(again.core.stats().kv_offload.damaged > 0);
  }
  SECTION("of another dtype: not looked at") {
    EngineConfig other = config;
    other.model.dtype = DType::bf16;
    SteppedEngine again(other);
    talk(again, 0, 1);
    CHECK(again.core.stats().external_cache_hits == 0);
  }
}

TEST_CASE("a reset of the prefix cache reaches what is behind it", "[kv_offload]") {
  const auto model = golden_models().front();
  const Folder folder;
  SteppedEngine large(offload_config(model));
  const EngineConfig config =
      with_disk(small_pool(offload_config(model), large.core), large.core, folder);
  SteppedEngine engine(config);
  talk(engine, 0, 1);
  REQUIRE(engine.core.stats().kv_offload.host_bytes > 0);
  CHECK(engine.core.reset_prefix_cache(1).done);
  CHECK(engine.core.stats().kv_offload.host_bytes == 0);
  CHECK(engine.core.stats().kv_offload.disk_bytes == 0);
  talk(engine, 0, 1);
  CHECK(engine.core.stats().external_cache_hits == 0);
}

TEST_CASE("requests that meet find what is behind the cache, whatever their order",
          "[kv_offload]") {
  for (const auto& model : golden_models()) {
    INFO(model);
    EngineConfig config = offload_config(model);
    SteppedEngine large(config);
    config = small_pool(config, large.core);
    *config.cache.num_gpu_blocks_override += large.core.kv_cache().max_blocks(160);
    config.kv_offload.host_bytes = std::int64_t{64} << 20;
    config.scheduler.max_num_seqs = 3;
    SteppedEngine engine(config);
    std::mt19937 random(11);
    std::map<RequestId, RequestId> expected;
    for (int i = 0; i < 30; ++i) {
      Tokens prompt = random_tokens(random() % 5, 40 + static_cast<int>(random() % 90));
      AddRequest request = greedy_request(prompt, 1 + static_cast<int>(random() % 20));
      request.sampling.ignore_eos = true;
      const RequestId here = engine.add(request);
      expected[here] = large.add(std::move(request));
      large.run();
      for (auto steps = random() % 12; steps > 0 && engine.core.has_work(); --steps) engine.step();
      if (random() % 7 == 0) {
        engine.core.abort(here);
        expected.erase(here);
      }
    }
    engine.run();
    for (const auto& [here, there] : expected)
      CHECK(engine.outputs[here].token_ids == large.outputs[there].token_ids);
    const EngineStats stats = engine.core.stats();
    CHECK(stats.num_free_blocks == stats.num_blocks);
    CHECK(stats.kv_offload.damaged == 0);
  }
}

TEST_CASE("too little memory for one block is refused by name", "[kv_offload]") {
  EngineConfig config = offload_config(golden_models().front());
  config.kv_offload.host_bytes = 64;
  CHECK_THROWS_WITH(SteppedEngine(config), Catch::Contains("KvOffloadConfig::host_bytes 64 holds no block"));
}

// What the pool gives up has the draft's keys and values, too; requests lose their blocks while
// drafts are open, where the device is said to be one of its own.
TEST_CASE("drafts in a small pool with memory behind it change no answer", "[kv_offload][drafts]") {
  const bool is_staged = GENERATE(false, true);
  const std::string folder = "tests/data/golden/drafts/eagle3-llama/";
  EngineConfig config = offload_config(folder + "target");
  config.model.dtype = DType::f32;
  config.scheduler.max_num_seqs = 5;
  config.deterministic = true;
  const auto answers = [&](SteppedEngine& engine) {
    std::vector<Tokens> tokens;
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<RequestId> ids;
      for (unsigned i = 0; i < 6; ++i) {
        Tokens prompt;
        for (unsigned j = 0; j < 40 + 11 * i; ++j)
          prompt.push_back(static_cast<TokenId>(3 + j * (1 + i % 3) % 110));
        AddRequest request = greedy_request(std::move(prompt), 60);
        request.sampling.ignore_eos = true;
        request.sampling.seed = i;
        if (i % 2 == 0) request.sampling.temperature = 0.7f;
        ids.push_back(engine.add(std::move(request)));
      }
      engine.run();
      for (const RequestId id : ids) tokens.push_back(engine.outputs[id].token_ids);
    }
    return tokens;
  };
  SteppedEngine plain(config);
  const std::vector<Tokens> expected = answers(plain);
  config.speculative = {.method = DraftMethod::eagle3,
                        .num_speculative_tokens = 3,
                        .adaptive = false,
                        .model = folder + "draft"};
  const SteppedEngine roomy(config);
  config.cache.num_gpu_blocks_override =
      static_cast<int>(roomy.core.plan().kv.workers.front().needed_blocks) + 2;
  config.kv_offload.host_bytes = std::int64_t{64} << 20;
  SteppedEngine small(config, [&](const EngineConfig& c) {
    EngineBackend backend = cpu_backend(c);
    if (is_staged) backend.device = std::make_unique<StagedDevice>(std::move(backend.device));
    return backend;
  });
  CHECK(answers(small) == expected);
  const EngineStats stats = small.core.stats();
  CHECK(stats.preemptions > 0);
  CHECK(stats.accepted_draft_tokens > 0);
  CHECK(stats.external_cache_hits > 0);
  CHECK(stats.kv_offload.damaged == 0);
  CHECK(stats.num_free_blocks == stats.num_blocks);
}

}  // namespace quire::test
