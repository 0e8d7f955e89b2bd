#pragma once
// The table of architectures: a name as config.json publishes it, how the rest of that file is
// read, and how the model is built. To add one is a row here and what the row names.

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "model/config.h"
#include "model/pooling.h"

namespace quire {

class Json;
class Model;
struct ModelSource;

// What a published class assumes where its config.json is silent.
struct ConfigDefaults {
  std::optional<int> vocab_size = {}, num_heads = {}, num_kv_heads = {}, head_dim = {};
  std::optional<int> max_position_embeddings = {};
  bool tie_word_embeddings = false;
};

struct Architecture {
  std::string_view name;
  void (*parse)(ModelConfig& config, const Json& text);
  std::unique_ptr<Model> (*make)(ModelSource source);
  ConfigDefaults defaults = {};
  PoolingTask task = PoolingTask::none;  // what the class is published for
};

std::span<const Architecture> architectures();
const Architecture* find_architecture(std::string_view name);  // null: not supported

}  // namespace quire
