// Draft models never change an answer, and what they cannot do is refused by name.

#include <catch2/catch.hpp>
#include <cctype>
#include <cstring>
#include <fstream>
#include <random>

#include "base/file.h"
#include "engine/core/fingerprint.h"
#include "model/draft_config.h"
#include "tests/engine/core/answers.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<TokenId>;

struct Pair {
  const char* name;
  DraftMethod method;
  bool has_states;  // recurrent
};

constexpr Pair kPairs[] = {{"eagle-llama", DraftMethod::eagle, false},
                           {"eagle3-llama-norms", DraftMethod::eagle3, false},
                           {"eagle3-qwen3", DraftMethod::eagle3, false},
                           {"mtp-deepseek-v3", DraftMethod::mtp, false},
                           {"mtp-qwen3-5", DraftMethod::mtp, true},
                           {"mtp-qwen3-next", DraftMethod::mtp, true}};

fs::path folder_of(const Pair& pair) { return fs::path("tests/data/golden/drafts") / pair.name; }

EngineConfig config_of(const Pair& pair) {
  EngineConfig config;
  config.model.path = (folder_of(pair) / "target").string();
  config.model.dtype = DType::f32;
  config.model.max_model_len = 192;
  config.cache.kv_cache_memory_bytes = std::int64_t{64} << 20;
  config.scheduler.max_num_seqs = 5;
  config.scheduler.max_num_batched_tokens = 40;  // prompts come in chunks
  config.cpu_threads = 1;
  config.deterministic = true;
  return config;
}

EngineConfig with_drafts(EngineConfig config, const Pair& pair, int num_drafts) {
  config.speculative.method = pair.method;
  config.speculative.num_speculative_tokens = num_drafts;
  if (pair.method != DraftMethod::mtp)
    config.speculative.model = (folder_of(pair) / "draft").string();
  return config;
}

// Prompts that share their beginnings; every second request is drawn, not chosen.
std::vector<AddRequest> requests() {
  std::vector<AddRequest> requests;
  std::mt19937 random(7);
  for (int i = 0; i < 12; ++i) {
    Tokens prompt;
    for (int j = 0; j < 10 + i * 7; ++j) prompt.push_back(3 + (j * (i % 3 + 1)) % 120);
    AddRequest request = greedy_request(std::move(prompt), 6 + static_cast<int>(random() % 40));
    SamplingParams& params = request.sampling;
    params.ignore_eos = true;
    params.seed = 100 + static_cast<std::uint64_t>(i);
    if (i % 2 == 1) params.temperature = 0.6f;
    if (i % 3 == 0) params.repetition_penalty = 1.2f;
    if (i % 4 == 2) params.logprobs = 2;
    if (i == 7) params.stop_token_ids = {5, 11, 17, 23, 42, 77, 99}, params.min_tokens = 4;
    if (i == 9) params.max_tokens = 1;
    if (i == 10) params.max_tokens = 1000;  // to the end of the context
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST_CASE("with a draft model the answers are those without", "[engine][core][drafts]") {
  for (const Pair& pair : kPairs) {
    INFO(pair.name);
    EngineConfig config = config_of(pair);
    SteppedEngine plain(config);
    const auto expected = answers_of(plain, requests());
    for (const bool adaptive : {false, true}) {
      INFO("as many as pay: " << adaptive);
      EngineConfig own = with_drafts(config, pair, 3);
      own.speculative.adaptive = adaptive;
      SteppedEngine roomy(own);
      if (adaptive) check_equal(expected, answers_of(roomy, requests()));
      // A request at its longest, and the null block: the others are preempted, and hit what is
      // left.
      own.cache.num_gpu_blocks_override =
          static_cast<int>(roomy.core.plan().kv.workers.front().needed_blocks) + 1;
      SteppedEngine tiny(own);
      check_equal(expected, answers_of(tiny, requests()));
      if (!adaptive) CHECK(tiny.core.stats().drafts > 0);  // where they pay
      if (!pair.has_states) CHECK(tiny.core.stats().preemptions > 0);
    }
    for (const int num_drafts : {1, 3, 6}) {
      INFO(num_drafts << " drafts");
      SteppedEngine engine(with_drafts(config, pair, num_drafts));
      check_equal(expected, answers_of(engine, requests()));
      const EngineStats stats = engine.core.stats();
      CHECK(stats.drafts > 0);
      CHECK(stats.draft_positions.front().accepted > 0);
      CHECK(stats.preemptions == 0);
      CHECK(stats.steps < plain.core.stats().steps);
    }
  }
}

// The draft's keys and values come with a prefix, and its last block is computed again.
TEST_CASE("a prefix hit changes no draft", "[engine][core][drafts]") {
  const Pair pair = kPairs[1];
  std::map<RequestId, std::vector<std::pair<int, TokenId>>> shown;
  SteppedEngine engine(with_drafts(config_of(pair), pair, 4));
  engine.core.observe_drafts(
      [&](const ShownDraft& one) { shown[one.request].emplace_back(one.context, one.draft); });
  Tokens prompt;
  for (int j = 0; j < 77; ++j) prompt.push_back(3 + (j * j) % 120);
  const AddRequest request = greedy_request(prompt, 20);
  for (int i = 0; i < 3; ++i) engine.finish(request);
  CHECK(engine.outputs[RequestId{2}].num_cached_tokens == 48);  // of the 64 in whole blocks
  CHECK(shown[RequestId{1}] == shown[RequestId{2}]);
  CHECK(shown[RequestId{1}] == shown[RequestId{3}]);
  CHECK(engine.core.stats().prefix_cache_hits == 96);
}

TEST_CASE("the plan has the draft's weights and pages", "[engine][core][drafts]") {
  for (const Pair& pair : kPairs) {
    INFO(pair.name);
    const EngineConfig config = config_of(pair);
    const SteppedEngine plain(config);
    const SteppedEngine drafting(with_drafts(config, pair, 3));  // allocates what is planned
    const auto page = [](const SteppedEngine& engine) {
      return engine.core.plan().kv.workers.front().pool_bytes_per_block;
    };
    CHECK(page(drafting) > page(plain));
  }
}

// A copy of a draft's folder with another config.
class ChangedDraft {
 public:
  ChangedDraft(const Pair& pair, const std::string& from, const std::string& to) {
    fs::create_directories(path_);
    const fs::path draft = fs::absolute(folder_of(pair) / "draft");
    fs::create_symlink(draft / "model.safetensors", path_ / "model.safetensors");
    std::string json = read_text_file(draft / "config.json", 1 << 20);
    std::erase_if(json, [](unsigned char c) { return std::isspace(c); });
    const std::size_t at = json.find(from);
    REQUIRE(at != std::string::npos);
    std::ofstream(path_ / "config.json") << json.replace(at, from.size(), to);
  }
  ~ChangedDraft() { fs::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  const fs::path path_ = fs::temp_directory_path() / ("quire-draft-" + std::to_string(getpid()));
};

std::string refusal(const EngineConfig& config) {
  try {
    SteppedEngine engine(config);
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "accepted";
}

TEST_CASE("a draft that does not fit its target is refused by its field",
          "[engine][core][drafts]") {
  struct Case {
    Pair pair;
    const char *from, *to, *named;
  };
  const Pair eagle = kPairs[0], eagle3 = kPairs[1];
  const Case cases[] = {
      {eagle, "\"vocab_size\":256", "\"vocab_size\":255", "vocab_size"},
      {eagle, "\"hidden_size\":48", "\"hidden_size\":64", "hidden_size"},
      {eagle, "\"rope_scaling\":null", "\"rope_scaling\":{\"rope_type\":\"spiral\"}", "rope"},
      {eagle, "\"num_key_value_heads\":3", "\"num_key_value_heads\":2", "k_proj"},
      {eagle, "\"num_hidden_layers\":1", "\"num_hidden_layers\":2", "layers.1."},
      {eagle, "\"model_type\":\"llama\"", "\"model_type\":\"bert\"", "model_type"},
      {eagle3, "\"draft_vocab_size\":128", "\"draft_vocab_size\":64", "draft_vocab_size"},
      {eagle3, "\"num_hidden_layers\":1", "\"num_hidden_layers\":2", "num_hidden_layers"},
      {eagle3, "[0,2,4]", "[0,2,6]", "eagle_aux_hidden_state_layer_ids"},
      {eagle3, "[0,2,4]", "[2,0,4]", "eagle_aux_hidden_state_layer_ids"},
      {eagle3, "[0,2,4]", "[0,2,3,4]", "fc"},
      {eagle, "{", "{\"layernorms\":true,", "layernorms"},
      {eagle, "{", "{\"speculators_model_type\":\"eagle3\",", "speculators_model_type"},
      {eagle3, "{", "{\"target_hidden_size\":96,", "target_hidden_size"},
      {eagle, "{", "{\"target_fingerprint\":\"0123456789abcdef\",", "target_fingerprint"},
      {eagle3, "{", "{\"parallel_drafting\":true,", "parallel_drafting"},
      {eagle3, "{", "{\"eagle_config\":{\"use_aux_hidden_state\":false},", "use_aux_hidden_state"},
      {eagle3, "{", "{\"eagle_config\":{\"parallel_draft_step\":4},", "parallel_draft_step"},
  };
  for (const Case& one : cases) {
    INFO(one.to);
    const ChangedDraft changed(one.pair, one.from, one.to);
    EngineConfig config = with_drafts(config_of(one.pair), one.pair, 3);
    config.speculative.model = changed.path();
    CHECK_THAT(refusal(config), Catch::Contains(one.named));
  }
}

// A draft's folder with one more tensor, of zeros.
class LongerDraft {
 public:
  LongerDraft(const Pair& pair, const std::string& name, const std::vector<std::int64_t>& shape) {
    fs::create_directories(path_);
    const fs::path draft = folder_of(pair) / "draft";
    fs::copy_file(draft / "config.json", path_ / "config.json");
    const std::string file = read_text_file(draft / "model.safetensors", 1 << 24);
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    std::string header = file.substr(sizeof length, length);
    const std::string data = file.substr(sizeof length + length);
    std::string extents;
    std::size_t bytes = sizeof(float);
    for (const std::int64_t n : shape) {
      extents += (extents.empty() ? "" : ",") + std::to_string(n);
      bytes *= static_cast<std::size_t>(n);
    }
    header.erase(header.rfind('}'));
    header += ",\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[" + extents +
              "],\"data_offsets\":[" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + bytes) + "]}}";
    length = header.size();
    std::ofstream out(path_ / "model.safetensors", std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << header << data << std::string(bytes, '\0');
  }
  ~LongerDraft() { fs::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  const fs::path path_ = fs::temp_directory_path() / ("quire-longer-" + std::to_string(getpid()));
};

TEST_CASE("an EAGLE head's own vocabulary head is used", "[engine][core][drafts]") {
  const Pair eagle = kPairs[0];
  const auto num_held = [&](const EngineConfig& config) {
    SteppedEngine engine(config);
    answers_of(engine, requests());
    std::int64_t sum = 0;
    for (const auto& place : engine.core.stats().draft_positions) sum += place.accepted;
    return sum;
  };
  EngineConfig config = with_drafts(config_of(eagle), eagle, 3);
  CHECK(num_held(config) > 10);
  {
    const LongerDraft zeros(eagle, "lm_head.weight", {256, 48});  // always the same draft
    config.speculative.model = zeros.path();
    CHECK(num_held(config) < 10);
  }
  const LongerDraft normed(eagle, "norm.weight", {48});
  config.speculative.model = normed.path();
  CHECK_THAT(refusal(config), Catch::Contains("norm.weight"));
}

TEST_CASE("a head that names its target is taken for that alone", "[engine][core][drafts]") {
  const Pair eagle = kPairs[0];
  const std::string own = weights_fingerprint(config_of(eagle).model.path);
  const std::string shipped = weights_fingerprint("models/quire-tiny");
  CHECK(own != shipped);
  const ChangedDraft changed(eagle, "{", "{\"target_fingerprint\":\"" + own + "\",");
  EngineConfig config = with_drafts(config_of(eagle), eagle, 3);
  config.speculative.model = changed.path();
  CHECK(refusal(config) == "accepted");
  // Before the target's weights are there nobody can tell.
  config.model.path = (fs::path(changed.path()) / "target").string();
  fs::create_directories(config.model.path);
  fs::copy_file(folder_of(eagle) / "target/config.json",
                fs::path(config.model.path) / "config.json");
  check_draft_target(config);
  for (const char* head : {"quire-tiny-eagle", "quire-tiny-eagle3"}) {
    const fs::path folder = fs::path("models/drafts") / head;
    CHECK(read_draft_config(folder).target_fingerprint == shipped);
  }
}

TEST_CASE("drafts that cannot be are refused at the start", "[engine][core][drafts]") {
  const Pair eagle = kPairs[0], eagle3 = kPairs[1], hybrid = kPairs[4];
  EngineConfig config = with_drafts(config_of(eagle), eagle, 3);
  config.speculative.model = "tests/data/no-such-draft";
  CHECK_THAT(refusal(config), Catch::Contains("no-such-draft"));
  config.speculative.model.clear();
  CHECK_THAT(validate(config).error().detail, Catch::Contains("names no model"));
  config = with_drafts(config_of(eagle), eagle, 129);
  CHECK_THAT(refusal(config), Catch::Contains("num_speculative_tokens"));
  // The context's first token and its last are none.
  config = with_drafts(config_of(eagle), eagle, 7);
  config.model.max_model_len = 8;
  CHECK_THAT(refusal(config),
             Catch::Contains("num_speculative_tokens 7") && Catch::Contains("has room for 6"));
  config.speculative.num_speculative_tokens = 6;
  CHECK(refusal(config) == "accepted");
  // A head as a pickle, as many are published.
  const fs::path pickled = fs::temp_directory_path() / ("quire-pickle-" + std::to_string(getpid()));
  fs::create_directories(pickled);
  fs::copy_file(folder_of(eagle) / "draft/config.json", pickled / "config.json");
  std::ofstream(pickled / "pytorch_model.bin") << "PK";
  config = with_drafts(config_of(eagle), eagle, 3);
  config.speculative.model = pickled.string();
  CHECK_THAT(refusal(config), Catch::Contains("save_file"));
  fs::remove_all(pickled);
  // A draft of one form as another, and a target without a module.
  config = with_drafts(config_of(eagle), eagle, 3);
  config.speculative.method = DraftMethod::eagle3;
  CHECK_THAT(refusal(config), Catch::Contains("eagle_aux_hidden_state_layer_ids"));
  config = with_drafts(config_of(eagle3), eagle3, 3);
  config.speculative.method = DraftMethod::mtp;
  config.speculative.model.clear();
  CHECK_THAT(refusal(config), Catch::Contains("LlamaForCausalLM"));
  config = config_of(hybrid);
  config.model.path = "tests/data/golden/models/qwen3-5";
  config.speculative = {.method = DraftMethod::mtp, .num_speculative_tokens = 2};
  CHECK_THAT(refusal(config), Catch::Contains("mtp.fc.weight"));
}

}  // namespace
}  // namespace quire::test
