#pragma once
// --generation-config and --override-generation-config: what a request does not say.

#include <string>

#include "model/config.h"

namespace CLI {
class App;
}

namespace quire {

struct GenerationFlags {
  std::string source = "auto";  // the model's generation_config.json; vllm: none
  GenerationConfig overrides{};
};

void add_generation_flags(CLI::App& app, GenerationFlags& flags);

// Of a JSON object with temperature, top_p, top_k, min_p, repetition_penalty and max_new_tokens;
// throws Failure that names another member, or a number that no request may have.
GenerationConfig read_generation_overrides(const std::string& json);

// The model's suggestions as far as the flags want them, and what the flags say over these.
GenerationConfig generation_config_for(const GenerationFlags& flags, GenerationConfig of_model);

}  // namespace quire
