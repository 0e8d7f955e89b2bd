// Pooling models through the engine: vectors as tests/model/pooling_reference.py computed them,
// whatever the chunks and the cache.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "base/json.h"
#include "engine/core/served_model.h"
#include "tests/engine/core/stepped_engine.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr const char* kFolder = "tests/data/pooling/qwen3-embedding";

EngineConfig pooling_config(const std::string& folder = kFolder) {
  EngineConfig config;
  config.model.path = folder;
  config.device = DeviceKind::cpu;
  config.cpu_threads = 1;
  config.cache.num_gpu_blocks_override = 40;
  config.scheduler.max_num_seqs = 4;
  config.scheduler.max_num_batched_tokens = 16;
  return config;
}

struct Expected {
  std::vector<TokenId> ids;
  std::vector<double> embedding, mean;
};

std::vector<Expected> expected(const std::string& folder = kFolder) {
  const JsonDocument document = JsonDocument::read(folder + "/expected.json", 1 << 20);
  std::vector<Expected> all;
  for (const Json one : document.object().at("texts").items()) {
    all.push_back({one.integers({"ids"}, {0, 1000}), *one.numbers({"embedding"}),
                   *one.numbers({"mean"})});
  }
  return all;
}

AddRequest pooled(std::vector<TokenId> prompt) {
  AddRequest request;
  request.prompt = std::move(prompt);
  request.pooling.emplace();
  return request;
}

// The engine gives vectors of any length.
void check_equal(std::vector<float> is, const std::vector<double>& wanted) {
  REQUIRE(is.size() == wanted.size());
  double squares = 0;
  for (const float value : is) squares += double(value) * value;
  for (std::size_t i = 0; i < is.size(); ++i)
    CHECK(is[i] / std::sqrt(squares) == Approx(wanted[i]).margin(2e-5));
}

}  // namespace

TEST_CASE("a request to a pooling model ends with its prompt's vector", "[engine][pooling]") {
  SteppedEngine engine(pooling_config());
  CHECK(engine.core.ready().pooling.task == PoolingTask::embed);
  CHECK(engine.core.ready().pooling.size == 32);
  CHECK(engine.core.ready().pooling.use_activation);
  for (const Expected& one : expected()) {
    const RequestOutput& output = engine.finish(pooled(one.ids));
    CHECK(output.finish_reason == FinishReason::stop);
    CHECK(output.token_ids.empty());
    check_equal(output.pooled, one.embedding);
  }
  const EngineStats stats = engine.core.stats();
  CHECK(stats.num_running + stats.num_waiting == 0);
  CHECK(stats.num_free_blocks == stats.num_blocks);
  CHECK(stats.generation_tokens == 0);
}

TEST_CASE("chunks, neighbours and cached prefixes leave a vector as it is", "[engine][pooling]") {
  SteppedEngine engine(pooling_config());
  const auto all = expected();
  for (int round = 0; round < 2; ++round) {
    std::vector<RequestId> ids;
    for (const Expected& one : all) ids.push_back(engine.add(pooled(one.ids)));
    engine.run();
    for (std::size_t i = 0; i < all.size(); ++i)
      check_equal(engine.outputs[ids[i]].pooled, all[i].embedding);
  }
  CHECK(engine.max_step_tokens == 16);
  CHECK(engine.core.stats().prefix_cache_hits > 0);
}

TEST_CASE("a prompt as long as the context has a vector", "[engine][pooling]") {
  EngineConfig config = pooling_config();
  const Expected longest = expected().back();
  config.model.max_model_len = static_cast<std::int64_t>(longest.ids.size());
  SteppedEngine engine(config);
  check_equal(engine.finish(pooled(longest.ids)).pooled, longest.embedding);
  std::vector<TokenId> longer = longest.ids;
  longer.push_back(1);
  CHECK(engine.finish(pooled(longer)).finish_reason == FinishReason::error);
}

TEST_CASE("the mean of hidden states wants a prompt in one step", "[engine][pooling]") {
  EngineConfig config = pooling_config();
  config.model.pooling.type = PoolingType::mean;
  const ServedModel served = read_served_model(config);
  CHECK(!served.config.scheduler.enable_chunked_prefill);
  CHECK(!served.config.cache.enable_prefix_caching);
  CHECK(served.config.scheduler.max_num_batched_tokens == 256);
  CHECK(!served.notes.empty());
  SteppedEngine engine(config);
  for (const Expected& one : expected()) check_equal(engine.finish(pooled(one.ids)).pooled, one.mean);
}

namespace {

constexpr const char* kBert = "tests/data/pooling/bert";
constexpr const char* kXlmRoberta = "tests/data/pooling/xlm-roberta";

// An encoder has no cache to choose the size of.
EngineConfig encoder_config(const std::string& folder) {
  EngineConfig config = pooling_config(folder);
  config.cache.num_gpu_blocks_override.reset();
  return config;
}

// Pairs and their logits, where the second text begins behind the ids of the first.
void check_scores(SteppedEngine& engine, const std::string& folder, TokenId separator,
                  int separators) {
  const JsonDocument document = JsonDocument::read(folder + "/expected.json", 1 << 20);
  std::vector<RequestId> ids;
  std::vector<double> wanted;
  for (const Json one : document.object().at("pairs").items()) {
    AddRequest request = pooled(one.integers({"ids"}, {0, 1000}));
    const auto end = std::find(request.prompt.begin(), request.prompt.end(), separator);
    request.pooling->second_segment =
        static_cast<int>(end - request.prompt.begin()) + separators;
    ids.push_back(engine.add(std::move(request)));
    wanted.push_back(*one.number({"logit"}));
  }
  engine.run();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    REQUIRE(engine.outputs[ids[i]].pooled.size() == 1);
    CHECK(engine.outputs[ids[i]].pooled[0] == Approx(wanted[i]).margin(1e-4));
  }
}

}  // namespace

TEST_CASE("an encoder has no cache, and each prompt is one step", "[engine][pooling]") {
  for (const std::string folder : {kBert, kXlmRoberta}) {
    SteppedEngine engine(encoder_config(folder));
    const Ready& ready = engine.core.ready();
    CHECK(ready.groups.empty());
    CHECK(ready.kv_cache_size_tokens == 0);
    CHECK(ready.max_model_len == 128);
    CHECK(std::ranges::none_of(ready.memory, [](const MemoryUseInfo& use) {
      return use.purpose == "kv_cache" && use.allocated_bytes > 0;
    }));
    CHECK(ready.pooling.task == PoolingTask::score);
    CHECK(ready.pooling.size == 1);
  }
}

TEST_CASE("a cross-encoder rates pairs of texts", "[engine][pooling]") {
  SteppedEngine bert(encoder_config(kBert)), roberta(encoder_config(kXlmRoberta));
  check_scores(bert, kBert, 3, 1);
  check_scores(roberta, kXlmRoberta, 2, 2);
}

TEST_CASE("encoders embed by their first token or the mean", "[engine][pooling]") {
  for (const std::string folder : {kBert, kXlmRoberta}) {
    for (const bool mean : {false, true}) {
      EngineConfig config = encoder_config(folder);
      config.model.pooling.convert = ConvertKind::embed;
      if (mean) config.model.pooling.type = PoolingType::mean;
      SteppedEngine engine(config);
      std::vector<RequestId> ids;
      const auto all = expected(folder);
      for (const Expected& one : all) ids.push_back(engine.add(pooled(one.ids)));
      engine.run();
      for (std::size_t i = 0; i < all.size(); ++i)
        check_equal(engine.outputs[ids[i]].pooled, mean ? all[i].mean : all[i].embedding);
    }
  }
}

TEST_CASE("two tokens of the vocabulary can be the classes", "[engine][pooling]") {
  EngineConfig config = pooling_config();
  config.model.pooling.classifier_tokens = {"n", "y"};
  SteppedEngine engine(config);
  CHECK(engine.core.ready().pooling.size == 1);
  check_scores(engine, kFolder, 0, 0);
}

TEST_CASE("who asks the wrong model is refused", "[engine][pooling]") {
  SteppedEngine pooling(pooling_config());
  AddRequest generating;
  generating.prompt = {1, 2};
  CHECK(pooling.finish(generating).error->detail.find("generates nothing") != std::string::npos);
  SteppedEngine engine;
  CHECK(engine.finish(pooled({1, 2})).error->detail.find("no vectors") != std::string::npos);
}

TEST_CASE("an aborted prompt leaves nothing behind", "[engine][pooling]") {
  SteppedEngine engine(pooling_config());
  const RequestId id = engine.add(pooled(expected().back().ids));
  engine.step();
  engine.core.abort(id);
  engine.run();
  CHECK(engine.outputs[id].pooled.empty());
  CHECK(engine.core.stats().num_free_blocks == engine.core.stats().num_blocks);
}
