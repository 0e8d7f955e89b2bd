#pragma once
// vLLM's --speculative-config: {"method": "ngram", "num_speculative_tokens": 3,
// "prompt_lookup_max": 4, "prompt_lookup_min": 2}, or {"method": "eagle3", "model": "path/of/draft",
// "num_speculative_tokens": 3}.

#include <string_view>

#include "base/result.h"
#include "engine/config.h"

namespace quire {

// Refuses methods and fields that it does not know; what the numbers may be is validate()'s.
Result<SpeculativeConfig> parse_speculative_config(std::string_view json);

}  // namespace quire
