// Drafts never change an answer: whoever proposes whatever, the tokens are those of the engine
// without drafts, through chunks, cache hits, preemptions and every way of choosing a token.

#include <catch2/catch.hpp>
#include <random>

#include "tests/engine/core/answers.h"
#include "tests/support/fake_constraint.h"

namespace quire::test {
namespace {

using Tokens = std::vector<TokenId>;
constexpr int kMostDrafts = 4;

// Knows the answers, and proposes right, wrong and half-right continuations of them.
class Adversary final : public Drafter {
 public:
  Adversary(std::map<RequestId, Tokens> answers, unsigned seed)
      : answers_(std::move(answers)), random_(seed) {}
  void propose(const Request& request, int max_drafts, Tokens& drafts) override {
    drafts.clear();
    const Tokens& answer = answers_[request.id()];
    const auto at = static_cast<std::size_t>(request.num_output());
    const std::size_t count = random_() % (kMostDrafts + 1);
    const std::size_t right = random_() % (count + 1);
    for (std::size_t i = 0; i < count; ++i) {
      const bool knows = at + i < answer.size() && i < right;
      drafts.push_back(knows ? answer[at + i] : static_cast<TokenId>(3 + random_() % 300));
    }
    drafts.resize(std::min(drafts.size(), static_cast<std::size_t>(max_drafts)));
  }

 private:
  std::map<RequestId, Tokens> answers_;
  std::mt19937 random_;
};

EngineConfig config_of(const std::string& model) {
  EngineConfig config;
  config.model.path = model;
  config.model.dtype = DType::f32;
  config.model.max_model_len = 256;
  config.cache.kv_cache_memory_bytes = std::int64_t{64} << 20;
  config.scheduler.max_num_seqs = 6;
  config.scheduler.max_num_batched_tokens = 48;  // prompts come in chunks
  config.cpu_threads = 1;
  config.deterministic = true;  // a row of one token is computed as among others
  return config;
}

EngineConfig with_drafts(EngineConfig config, bool adaptive = false) {
  config.speculative = {.method = DraftMethod::ngram,
                        .num_speculative_tokens = kMostDrafts,
                        .adaptive = adaptive,
                        .prompt_lookup_min = 1,
                        .prompt_lookup_max = 3};
  return config;
}

// Every way of choosing a token, on prompts that repeat themselves and share their beginnings.
std::vector<AddRequest> requests() {
  std::vector<AddRequest> requests;
  std::mt19937 random(5);
  for (int i = 0; i < 14; ++i) {
    Tokens prompt;
    for (int j = 0; j < 20 + i * 6; ++j) prompt.push_back(3 + (j * (i % 3 + 1)) % 23);
    AddRequest request = greedy_request(std::move(prompt), 8 + static_cast<int>(random() % 40));
    SamplingParams& params = request.sampling;
    params.ignore_eos = true;
    if (i % 2 == 1) params.temperature = i % 4 == 1 ? 0.3f : 1.f;
    params.seed = 100 + static_cast<std::uint64_t>(i);
    if (i % 3 == 0) params.repetition_penalty = 1.2f;
    if (i % 5 == 0) params.frequency_penalty = 0.5f;
    if (i % 7 == 1) params.presence_penalty = 0.7f;
    if (i % 4 == 2) params.bad_words = {{{5}}, {{6, 7}}, {{8, 9, 10}}};
    if (i % 6 == 3) params.logprobs = 3;
    if (i % 5 == 4) params.logit_bias = {{9, 2.f}, {12, -5.f}};
    if (i == 8) params.allowed_tokens = {4, 5, 6, 7, 8};
    if (i == 9) params.top_k = 7, params.top_p = 0.8f;
    if (i == 10) params.stop_token_ids = {3, 4, 5, 6, 7, 8, 9, 11, 13}, params.min_tokens = 6;
    if (i == 11) params.max_tokens = 1;
    if (i == 12) params.min_p = 0.05f;
    requests.push_back(std::move(request));
  }
  return requests;
}

std::int64_t num_accepted(const EngineStats& stats) {
  std::int64_t accepted = 0;
  for (const DraftPosition& position : stats.draft_positions) accepted += position.accepted;
  return accepted;
}

TEST_CASE("with drafts the answers are those without", "[engine][core][drafts]") {
  const auto model =
      GENERATE(as<std::string>(), "models/quire-tiny", "tests/data/golden/models/deepseek-v3",
               "tests/data/golden/models/phi3-longrope");
  INFO(model);
  EngineConfig config = config_of(model);
  SteppedEngine plain(config);
  const auto expected = answers_of(plain, requests());
  CHECK(plain.core.stats().draft_positions.empty());
  std::map<RequestId, Tokens> answers;
  for (const auto& [id, output] : expected) answers[id] = output.token_ids;

  const bool adaptive = GENERATE(false, true);
  INFO("adaptive: " << adaptive);
  SECTION("prompt lookup") {
    SteppedEngine engine(with_drafts(config, adaptive));
    check_equal(expected, answers_of(engine, requests()));
    const EngineStats stats = engine.core.stats();
    CHECK(stats.drafts > 0);
    CHECK(stats.draft_tokens >= stats.drafts);
    CHECK(stats.draft_positions.size() == kMostDrafts);
    CHECK(stats.draft_choices.size() == kMostDrafts + 1);
  }
  SECTION("an adversary, in a pool that is too small for all") {
    // A request at its longest, and the null block.
    config.cache.num_gpu_blocks_override =
        static_cast<int>(plain.core.plan().kv.workers.front().needed_blocks) + 1;
    std::int64_t num_preemptions = 0;
    for (unsigned seed = 1; seed <= 3; ++seed) {
      SteppedEngine engine(with_drafts(config, adaptive));
      engine.core.use_drafter(std::make_unique<Adversary>(answers, seed));
      check_equal(expected, answers_of(engine, requests()));
      const EngineStats stats = engine.core.stats();
      CHECK(stats.drafts > 0);
      if (!adaptive) CHECK(num_accepted(stats) > 20);
      CHECK(num_accepted(stats) < stats.draft_tokens);
      num_preemptions += stats.preemptions;
    }
    // Its window gives blocks back as fast as its requests take them.
    if (model.find("phi3") == std::string::npos && !adaptive) CHECK(num_preemptions > 0);
  }
}

TEST_CASE("right drafts save steps", "[engine][core][drafts]") {
  const EngineConfig config = config_of("models/quire-tiny");
  AddRequest request = greedy_request({20, 21, 22, 23}, 60);
  request.sampling.ignore_eos = true;
  SteppedEngine plain(config);
  const Tokens answer = plain.finish(request).token_ids;

  class Oracle final : public Drafter {
   public:
    explicit Oracle(Tokens answer) : answer_(std::move(answer)) {}
    void propose(const Request& own, int max_drafts, Tokens& drafts) override {
      const auto begin = answer_.begin() + std::min<std::ptrdiff_t>(own.num_output(), 60);
      drafts.assign(begin, begin + std::min<std::ptrdiff_t>(max_drafts, answer_.end() - begin));
    }

   private:
    const Tokens answer_;
  };
  SteppedEngine engine(with_drafts(config));
  engine.core.use_drafter(std::make_unique<Oracle>(answer));
  CHECK(engine.finish(request).token_ids == answer);
  // The first token alone, then five a step; the last step has no room for four drafts.
  CHECK(engine.core.stats().steps == 1 + 12);
  CHECK(engine.core.stats().drafts == 12);
  CHECK(engine.core.stats().draft_tokens == num_accepted(engine.core.stats()));
}

TEST_CASE("drafts that a constraint refuses change nothing", "[engine][core][drafts]") {
  const BackendFactory backend = [](const EngineConfig& config) {
    EngineBackend made = cpu_backend(config);
    made.compile_constraint = compile_fake;
    return made;
  };
  const auto ask = [](SteppedEngine& engine) {
    for (const char* text : {"30 31 32 33 34 35 36|30 31 40 41 42", "50|51 52 53 54 55 56 57 58"}) {
      AddRequest request = greedy_request({20, 21, 22, 23}, 20);
      request.sampling.constraint = ConstraintSpec{.kind = ConstraintKind::choice, .text = text};
      engine.add(std::move(request));
    }
    while (engine.core.has_work()) engine.step();
    return engine.outputs;
  };
  const EngineConfig config = config_of("models/quire-tiny");
  SteppedEngine plain(config, backend);
  const auto expected = ask(plain);
  std::map<RequestId, Tokens> answers;
  for (const auto& [id, output] : expected) {
    answers[id] = output.token_ids;
    CHECK(output.finish_reason == FinishReason::stop);
  }
  for (unsigned seed = 1; seed <= 8; ++seed) {
    SteppedEngine engine(with_drafts(config), backend);
    engine.core.use_drafter(std::make_unique<Adversary>(answers, seed));
    check_equal(expected, ask(engine));
  }
}

TEST_CASE("no drafts while more requests run than they are for", "[engine][core][drafts]") {
  const EngineConfig config = config_of("models/quire-tiny");
  SteppedEngine plain(config);
  const auto expected = answers_of(plain, requests());
  std::map<RequestId, Tokens> answers;
  for (const auto& [id, output] : expected) answers[id] = output.token_ids;
  const auto drafts_with = [&](int limit) {
    EngineConfig drafting = with_drafts(config);
    drafting.speculative.disable_by_batch_size = limit;
    SteppedEngine engine(drafting);
    engine.core.use_drafter(std::make_unique<Adversary>(answers, 1));
    for (const AddRequest& request : requests()) engine.add(request);
    int most_running = 0;  // while there were drafts
    for (std::int64_t before = 0; engine.core.has_work();) {
      engine.step();
      const EngineStats stats = engine.core.stats();
      if (stats.draft_tokens > before) most_running = std::max(most_running, stats.step_requests);
      before = stats.draft_tokens;
    }
    check_equal(expected, engine.outputs);
    return most_running;
  };
  CHECK(drafts_with(0) == config.scheduler.max_num_seqs);
  // Given while so many ran; others may have come since.
  const int few = drafts_with(2);
  CHECK(few > 0);
  CHECK(few < config.scheduler.max_num_seqs);
}

// Always as many as it may.
class Eager final : public Drafter {
 public:
  void propose(const Request&, int max_drafts, Tokens& drafts) override {
    drafts.assign(static_cast<std::size_t>(max_drafts), 3);
  }
};

// Else the choice would count on drafts that nobody verifies.
TEST_CASE("no more drafts are chosen than an answer has room for", "[engine][core][drafts]") {
  SteppedEngine engine(with_drafts(config_of("models/quire-tiny")));
  engine.core.use_drafter(std::make_unique<Eager>());
  AddRequest request = greedy_request({9, 8, 7, 6}, 3);
  request.sampling.ignore_eos = true;
  engine.add(std::move(request));
  engine.run();
  const EngineStats stats = engine.core.stats();
  // One behind the first token, which the third follows; none behind the second.
  CHECK(stats.draft_tokens == 1);
  CHECK(stats.draft_choices[1].rows == 1);
  for (std::size_t drafts = 2; drafts < stats.draft_choices.size(); ++drafts)
    CHECK(stats.draft_choices[drafts].rows == 0);
}

// A state behind each draft; later requests go on from those within prompts.
TEST_CASE("recurrent states go on from the last draft that held", "[engine][core][drafts]") {
  const auto model = GENERATE(as<std::string>(), "tests/data/golden/models/qwen3-5",
                              "tests/data/golden/models/nemotron-h");
  const auto mode = GENERATE(StateCacheMode::none, StateCacheMode::align, StateCacheMode::adaptive);
  INFO(model << ", " << name_of(mode));
  EngineConfig config = config_of(model);
  config.cache.enable_prefix_caching = mode != StateCacheMode::none;
  if (config.cache.enable_prefix_caching) config.cache.mamba_cache_mode = mode;
  SteppedEngine plain(config);
  const auto expected = answers_of(plain, requests());
  std::map<RequestId, Tokens> answers;
  for (const auto& [id, output] : expected) answers[id] = output.token_ids;
  const SteppedEngine roomy(with_drafts(config));
  const auto least = static_cast<int>(roomy.core.plan().kv.workers.front().needed_blocks) + 1;
  std::int64_t num_preemptions = 0, num_hits = 0;
  const bool adaptive = GENERATE(false, true);
  INFO("adaptive: " << adaptive);
  for (const int more_blocks : {0, 3, 12, 14, 200}) {
    EngineConfig drafting = with_drafts(config, adaptive);
    drafting.cache.num_gpu_blocks_override = least + more_blocks;
    SteppedEngine engine(drafting);
    engine.core.use_drafter(std::make_unique<Adversary>(answers, 5));
    check_equal(expected, answers_of(engine, requests()));
    CHECK(engine.core.stats().drafts > 0);
    if (!adaptive) CHECK(num_accepted(engine.core.stats()) > 20);
    num_preemptions += engine.core.stats().preemptions;
    num_hits += engine.core.stats().prefix_cache_hits;
  }
  if (!adaptive) CHECK(num_preemptions > 0);  // else it depends on how much is drafted
  CHECK((num_hits > 0) == config.cache.enable_prefix_caching);
}

TEST_CASE("states at every block boundary are refused beside drafts", "[engine][core][drafts]") {
  EngineConfig config = with_drafts(config_of("tests/data/golden/models/qwen3-5"));
  config.cache.mamba_cache_mode = StateCacheMode::all;
  CHECK_THROWS_WITH(SteppedEngine(config), Catch::Contains("CacheConfig::mamba_cache_mode") &&
                                               Catch::Contains("recurrent states"));
}

}  // namespace
}  // namespace quire::test
