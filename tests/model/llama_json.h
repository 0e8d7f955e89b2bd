#pragma once
// Configurations for tests, by their fields.

#include <string>

#include "model/config.h"

namespace quire::test {

inline ModelConfig parse(const std::string& json) { return parse_model_config(json, "config.json"); }

// The smallest Llama, with `more` fields.
inline std::string llama(const std::string& more = "", const char* architecture = "LlamaForCausalLM") {
  return std::string(R"({"architectures":[")") + architecture +
         R"("],"vocab_size":100,"hidden_size":64,"num_attention_heads":4,"num_hidden_layers":2,)"
         R"("intermediate_size":128)" +
         (more.empty() ? "" : "," + more) + "}";
}

}  // namespace quire::test
