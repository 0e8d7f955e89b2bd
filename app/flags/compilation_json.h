#pragma once
// vLLM's --compilation-config: {"mode": 3, "cudagraph_mode": "FULL", "cudagraph_capture_sizes": [1,
// 2, 4], …}. Nothing is compiled here; of its members those on CUDA graphs have a meaning.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quire {

struct CompilationConfig {
  bool no_graphs = false;    // --enforce-eager
  bool only_decode = false;  // none of steps with prompts
  std::vector<int> capture_sizes;
  std::optional<int> max_capture_size;
  std::vector<std::string> without_effect;  // other members
};

// A number is the level of older versions.
Result<CompilationConfig> parse_compilation_config(std::string_view json);

}  // namespace quire
