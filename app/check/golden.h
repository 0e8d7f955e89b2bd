#pragma once
// A folder of reference answers beside a model: golden.json and golden.safetensors. Used by
// `quire check` and by tests.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"

namespace quire {

struct GoldenCase {
  std::vector<TokenId> prompt;
  std::vector<TokenId> greedy;     // the reference's continuation
  std::vector<double> greedy_gap;  // top-1 minus top-2 logit at each of its steps
  std::vector<float> logits;       // [prompt, vocab]
};

struct Golden {
  std::string name;
  double atol = 0.0;                  // float32 logits may differ by so much
  double kl_of_reference_bf16 = 0.0;  // mean over the longest prompt
  std::vector<GoldenCase> cases;
  int vocab_size = 0;
};

// Throws Failure naming file and field.
Golden read_golden(const std::filesystem::path& directory);

// How far logits [rows, vocab] are from the reference's.
struct LogitDistance {
  double max_abs = 0.0;
  double mean_kl = 0.0;  // of softmax(logits) from softmax(reference), nats, mean over rows
};
LogitDistance distance(std::span<const float> logits, std::span<const float> reference,
                       int vocab_size);

TokenId argmax(std::span<const float> row);

}  // namespace quire
