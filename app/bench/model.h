#pragma once
// What a step must read and multiply at least, from the headers of a model's files.

#include <string>

#include "model/config.h"

namespace quire {

struct BenchModel {
  double file_bytes = 0;
  double step_bytes = 0;     // weights that a step of one token reads, as published
  double token_products = 0;  // multiplications with weights for a token of a prompt, the head's not
  double head_products = 0;
  double kv_elements = 0;  // that a token leaves in the caches of attention layers
  double attention_products = 0;  // of a token with one cached one, over all layers
};

// All zero without weight files. Expert weights count by the share that a token is sent to.
BenchModel bench_model(const std::string& path, const ModelConfig& config);

}  // namespace quire
