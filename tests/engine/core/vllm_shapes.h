#pragma once
// Hybrid models as vLLM's connectors are told of them, and what they answer.

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace quire::test {

// A member of a JSON object, as text.
inline std::string member(const std::string& json, const char* name) {
  const auto at = json.find(fmt::format("\"{}\": ", name));
  REQUIRE(at != std::string::npos);
  const std::size_t begin = at + std::string_view(name).size() + 4;
  int depth = 0;
  for (std::size_t end = begin; end < json.size(); ++end) {
    const char c = json[end];
    if (c == '[' || c == '{') ++depth;
    if (depth == 0 && (c == ',' || c == '}')) return json.substr(begin, end - begin);
    if (c == ']' || c == '}') --depth;
  }
  return json.substr(begin);
}

inline std::filesystem::path golden(const char* model) {
  const char* full = std::getenv("QUIRE_GOLDEN_DIR");
  return std::filesystem::path(full != nullptr ? full : "tests/data/golden") / "models" / model;
}

// Three layers with states and one with attention, each a group of its own.
inline std::string hybrid_shape(int port, const char* groups, const std::string& states, int ranks,
                                int block_size = 16) {
  return fmt::format(
      R"({{"layers": 4, "kv_heads": 2, "head_size": 16, "dtype": "float32", "block_size": {},
          "blocks": 64, "ranks": {}, "model": "tiny", "port": {}, "groups": [{}],
          "state_dtype": "float32", {}}})",
      block_size, ranks, port, groups, states);
}

inline std::string delta_net_shape(int port, int ranks = 1, const char* conv = "[128, 3]",
                                   int ratio = 2, int block_size = 16) {
  return hybrid_shape(port,
                      R"({"kind": "delta_net", "layers": [0]}, {"kind": "delta_net", "layers": [1]},
         {"kind": "delta_net", "layers": [2]}, {"kind": "attention", "layers": [3]})",
                      fmt::format(R"("ratio": {}, "conv": {}, "state": [4, 16, 16])", ratio, conv),
                      ranks, block_size);
}

inline std::string granite_shape(int port, int ranks = 1, int ratio = 3, int block_size = 16) {
  return hybrid_shape(port,
                      R"({"kind": "mamba2", "layers": [0]}, {"kind": "mamba2", "layers": [1]},
         {"kind": "mamba2", "layers": [3]}, {"kind": "attention", "layers": [2]})",
                      fmt::format(R"("ratio": {}, "conv": [160, 3], "state": [8, 16, 16])", ratio),
                      ranks, block_size);
}

}  // namespace quire::test
