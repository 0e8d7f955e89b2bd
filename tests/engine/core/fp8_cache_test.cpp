// The shipped model over an fp8 KV cache, with the scales of its checkpoint and without.

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/safetensors.h"
#include "tests/engine/core/eval_lines.h"
#include "tests/engine/core/stepped_engine.h"
#include "tests/support/number_file.h"
#include "tests/support/temp_path.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

constexpr int kLayers = 4;
constexpr double kSafeMargin = 0.25;  // as tests/eval has it

EngineConfig fp8_config(const std::string& path = "models/quire-tiny") {
  EngineConfig config = tiny_config();
  config.model.path = path;
  config.cache.cache_dtype = DType::fp8_e4m3;
  return config;
}

// The shipped model as if calibrated: a scheme in config.json, and scales in a file of their own.
class Calibrated {
 public:
  explicit Calibrated(float scale) : folder_(temp_path("quire_fp8_cache_test")) {
    const fs::path shipped = fs::absolute("models/quire-tiny");
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    fs::create_symlink(shipped / "model.safetensors", folder_ / "shipped.safetensors");
    std::map<std::string, float> scales;
    for (int i = 0; i < kLayers; ++i) {
      const std::string attention = "model.layers." + std::to_string(i) + ".self_attn.";
      scales[attention + "k_scale"] = scale;
      scales[attention + "v_scale"] = scale;
    }
    write_numbers(folder_ / "scales.safetensors", scales);
    std::ofstream index(folder_ / "model.safetensors.index.json");
    index << R"({"weight_map":{)";
    const SafetensorsFile weights(shipped / "model.safetensors");
    for (const auto& [name, tensor] : weights.tensors())
      index << "\"" << name << R"(":"shipped.safetensors",)";
    for (const auto& [name, value] : scales)
      index << (name == scales.begin()->first ? "\"" : ",\"") << name
            << R"(":"scales.safetensors")";
    index << "}}";
    std::stringstream config;
    config << std::ifstream(shipped / "config.json").rdbuf();
    std::ofstream(folder_ / "config.json")
        << R"({"quantization_config":{"quant_method":"compressed-tensors","config_groups":{},)"
        << R"("kv_cache_scheme":{"type":"float","num_bits":8,"strategy":"tensor","dynamic":false,)"
        << R"("symmetric":true}},)" << config.str().substr(config.str().find('{') + 1);
  }
  ~Calibrated() { fs::remove_all(folder_); }
  std::string path() const { return folder_.string(); }

 private:
  fs::path folder_;
};

std::vector<std::vector<TokenId>> answers(const EngineConfig& config,
                                          const std::vector<EvalLine>& lines) {
  SteppedEngine engine(config);
  std::vector<RequestId> ids;
  for (const EvalLine& line : lines) ids.push_back(engine.add(greedy_request(line.prompt, 128)));
  engine.run();
  std::vector<std::vector<TokenId>> answers;
  for (const RequestId id : ids) {
    RequestOutput& output = engine.outputs[id];
    if (output.stop_token) output.token_ids.pop_back();
    answers.push_back(output.token_ids);
  }
  return answers;
}

// Lines whose answer is the reference's.
std::size_t right(const std::vector<std::vector<TokenId>>& answers,
                  const std::vector<EvalLine>& lines) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) count += answers[i] == lines[i].reference;
  return count;
}

}  // namespace

TEST_CASE("an fp8 cache gives the reference's tokens where its lead is safe", "[engine][fp8]") {
  const auto lines = eval_lines("models/quire-tiny", kSafeMargin);
  REQUIRE(lines.size() > 20);
  CHECK(right(answers(fp8_config(), lines), lines) == lines.size());
}

TEST_CASE("what is reported of an fp8 cache is what runs", "[engine][fp8]") {
  EngineConfig wide = tiny_config();
  wide.cache.num_gpu_blocks_override.reset();
  EngineConfig narrow = wide;
  narrow.cache.cache_dtype = DType::fp8_e4m3;
  const Ready before = SteppedEngine(wide).core.ready(), after = SteppedEngine(narrow).core.ready();
  CHECK(after.kv_cache_dtype == "fp8_e4m3");
  CHECK(after.groups.at(0).page_bytes * 2 == before.groups.at(0).page_bytes);
  CHECK(after.num_gpu_blocks / 2 == before.num_gpu_blocks);
  CHECK(after.kv_cache_size_tokens >= 2 * before.kv_cache_size_tokens);
}

TEST_CASE("a calibrated checkpoint gets an fp8 cache and its scales", "[engine][fp8]") {
  const auto lines = eval_lines("models/quire-tiny", kSafeMargin);
  EngineConfig config = fp8_config();
  config.cache.cache_dtype.reset();
  {
    const Calibrated model(0.125f);
    config.model.path = model.path();
    CHECK(SteppedEngine(config).core.ready().kv_cache_dtype == "fp8_e4m3");
    CHECK(right(answers(config, lines), lines) == lines.size());
    config.cache.cache_dtype = DType::bf16;
    CHECK(SteppedEngine(config).core.ready().kv_cache_dtype == "bfloat16");
    config.cache.cache_dtype.reset();
  }
  // With a scale that lets nothing through, nothing can be right by chance.
  const Calibrated blind(1e6f);
  config.model.path = blind.path();
  CHECK(right(answers(config, lines), lines) == 0);
}

TEST_CASE("a checkpoint whose scale is zero does not start", "[engine][fp8]") {
  const Calibrated model(0.f);
  CHECK_THROWS_WITH(SteppedEngine(fp8_config(model.path())), Catch::Contains("k_scale"));
}

}  // namespace quire::test
