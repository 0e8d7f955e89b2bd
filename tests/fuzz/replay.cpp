// Every file of tests/fuzz/corpus through its target: what a fuzzer found once stays found.

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/targets.h"

namespace quire {
namespace {

struct Target {
  const char* name;
  void (*run)(std::string_view bytes);
};

constexpr Target kTargets[] = {
    {"http", fuzz::http},           {"json_bodies", fuzz::json_bodies}, {"jinja", fuzz::jinja},
    {"tokenizer", fuzz::tokenizer}, {"safetensors", fuzz::safetensors}, {"config", fuzz::config},
    {"gguf", fuzz::gguf},           {"wire", fuzz::wire},               {"kv_transfer", fuzz::kv_transfer},
    {"kv_nixl", fuzz::kv_nixl},     {"kv_mooncake", fuzz::kv_mooncake},
    {"kv_events", fuzz::kv_events}};

TEST_CASE("what fuzzers found before breaks nothing", "[fuzz]") {
  for (const Target& target : kTargets) {
    CAPTURE(target.name);
    const auto folder = std::filesystem::path("tests/fuzz/corpus") / target.name;
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      CAPTURE(entry.path());
      std::ifstream file(entry.path(), std::ios::binary);
      // Of exactly the file's size, so that reading beyond it shows under a sanitizer.
      const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
      target.run({bytes.data(), bytes.size()});
      ++count;
    }
    CHECK(count > 0);
  }
}

}  // namespace
}  // namespace quire
