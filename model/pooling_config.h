#pragma once
// How a model pools, found in its own files: the class that config.json names, and the modules of
// sentence-transformers (modules.json and what it points to). Flags have the last word.

#include <filesystem>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/pooling.h"

namespace quire {

struct PoolingConfig {
  PoolingTask task = PoolingTask::none;  // none: it generates, and the rest says nothing
  PoolingType type = PoolingType::last;
  bool use_activation = true;  // length 1 (embed), sigmoid (score)
  bool is_matryoshka = false;
  std::vector<std::int32_t> matryoshka_dimensions = {};
  std::vector<std::string> classifier_tokens = {};
  int max_tokens = 0;  // of sentence_bert_config.json; 0: it does not say

  bool pools() const { return task != PoolingTask::none; }
};

// Throws Failure for flags that the model cannot follow or that change nothing, by name, and for
// modules that are not supported.
PoolingConfig find_pooling(const std::filesystem::path& model_dir, const ModelConfig& config,
                           const PoolingOptions& options);

// "last", "cls", "mean"; "embed", "score", "generate".
std::string_view name_of(PoolingType type);
std::string_view name_of(PoolingTask task);

}  // namespace quire
