// Mutated files: parsers answer or throw Failure, whatever the bytes. A seeded loop of mutations.

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "backend/measuring_device.h"
#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "model/draft_config.h"
#include "model/draft_registry.h"
#include "model/kv_spec.h"
#include "model/registry.h"
#include "tests/fuzz/targets.h"

namespace quire {
namespace {

using Entry = void (*)(std::string_view bytes);

// Without files, so that a draft is only measured, beside a target that is.
void fuzz_draft_config(std::string_view text) {
  static MeasuringDevice device(true);
  static const ModelConfig target_config =
      read_model_config("tests/data/golden/drafts/eagle3-llama/target");
  static const auto target = load_model(target_config, "fuzz", device, cpu_traits(),
                                        {.max_model_len = 64, .measure = true});
  try {
    const DraftConfig config = parse_draft_config(text, "fuzz");
    for (const DraftForm form : {DraftForm::eagle, DraftForm::eagle3}) {
      const auto draft = make_draft_of(
          config,
          {.form = form, .directory = "fuzz", .target_config = target_config, .target = *target},
          device, cpu_traits(), {.max_model_len = 64, .measure = true});
      REQUIRE(draft->vocab_size() <= target_config.vocab_size);
      for (const LayerKvSpec& layer : draft->kv_specs({})) REQUIRE(page_bytes(layer.spec) > 0);
    }
  } catch (const Failure&) {
  }
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// Bits, bytes, digits, pieces removed, repeated or taken from another seed.
std::string mutate(std::string text, const std::string& other, std::mt19937& random) {
  const auto below = [&](std::size_t n) {
    return std::size_t(random() % std::max<std::size_t>(n, 1));
  };
  for (std::size_t edits = 1 + below(6); edits > 0 && !text.empty(); --edits) {
    const std::size_t at = below(text.size()),
                      length = below(std::min<std::size_t>(text.size() - at, 40));
    switch (below(6)) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        text[at] = static_cast<char>(random());
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(below(text.size()), length));
        break;
      case 4:
        text.insert(at, other.substr(below(other.size()), length));
        break;
      default:
        if (const auto digit = text.find_first_of("0123456789", at); digit != std::string::npos) {
          const char* const kNumbers[] = {"-1", "0", "1e999", "4294967296", "9223372036854775807"};
          text.replace(digit, 1, kNumbers[below(5)]);
        }
    }
  }
  return text;
}

void run(Entry entry, const std::vector<std::string>& seeds, int rounds) {
  std::mt19937 random(20240607);
  for (int i = 0; i < rounds; ++i) {
    const std::string& seed = seeds[random() % seeds.size()];
    const std::string input = mutate(seed, seeds[random() % seeds.size()], random);
    // A copy of exactly its size, so that reading beyond it shows under a sanitizer.
    const std::vector<char> bytes(input.begin(), input.end());
    entry({bytes.data(), bytes.size()});
  }
}

TEST_CASE("mutated safetensors headers never lead outside the file", "[model][fuzz]") {
  std::vector<std::string> seeds;
  for (const char* file : {"tests/data/golden/models/qwen3-5/model.safetensors",
                           "tests/data/golden/quantized/gpt-oss-mxfp4/model.safetensors"}) {
    // Header and a little data; the sizes then lie, which is a mutation too.
    seeds.push_back(read_file(file).substr(0, 16384));
  }
  std::string small("\x48\0\0\0\0\0\0\0", 8);
  small += R"({"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}                )";
  seeds.push_back(small + "12345678");
  run(fuzz::safetensors, seeds, 4000);
}

TEST_CASE("mutated configurations parse or fail by name", "[model][fuzz]") {
  std::vector<std::string> seeds;
  for (const auto& entry : std::filesystem::directory_iterator("tests/data/golden/models")) {
    seeds.push_back(read_file(entry.path() / "config.json"));
  }
  seeds.push_back(read_file("models/quire-tiny-hybrid/config.json"));
  for (const char* folder : {"ct-fp8", "fp8-block", "gpt-oss-mxfp4"}) {
    seeds.push_back(
        read_file(std::filesystem::path("tests/data/golden/quantized") / folder / "config.json"));
  }
  run(fuzz::config, seeds, 20000);
}

TEST_CASE("mutated draft configurations parse or fail by name", "[model][fuzz]") {
  std::vector<std::string> seeds;
  for (const auto& entry : std::filesystem::directory_iterator("tests/data/golden/drafts")) {
    if (std::filesystem::exists(entry.path() / "draft"))
      seeds.push_back(read_file(entry.path() / "draft" / "config.json"));
  }
  run(fuzz_draft_config, seeds, 6000);
}

}  // namespace
}  // namespace quire
