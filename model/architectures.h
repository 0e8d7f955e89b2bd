#pragma once
// The table of architectures: a name as config.json publishes it, how the rest of that file is
// read, and how the model is built. To add one is a row here and what the row names.

#include <memory>
#include <span>
#include <string_view>

#include "model/config.h"
#include "model/pooling.h"

namespace quire {

class Json;
class Model;
struct ModelSource;

// What classes assume where their config.json is silent, as JSON: model/config_defaults.cpp.
namespace class_defaults {
extern const std::string_view kMistral, kMistral3, kPhi3, kQwen2, kQwen3, kOlmo2, kGemma2, kGemma3,
    kGemma3Vision, kMixtral, kQwen3Moe, kGlm4Moe, kGptOss, kDeepseekV2, kDeepseekV3, kQwen3Next,
    kQwen35, kQwen35Moe, kNemotronH, kGraniteHybrid, kBert;
}

struct Architecture {
  std::string_view name;
  void (*parse)(ModelConfig& config, const Json& text);
  std::unique_ptr<Model> (*make)(ModelSource source);
  const std::string_view* defaults = nullptr;  // of class_defaults
  PoolingTask task = PoolingTask::none;  // what the class is published for
};

std::span<const Architecture> architectures();
const Architecture* find_architecture(std::string_view name);  // null: not supported

}  // namespace quire
