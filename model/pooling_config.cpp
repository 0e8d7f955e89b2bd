#include "model/pooling_config.h"

#include <optional>

#include "base/json.h"
#include "model/architectures.h"
#include "model/encoder.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxBytes = 16u << 20;

// What modules.json lists.
struct Modules {
  std::optional<PoolingType> type;
  bool normalizes = false;
};

[[noreturn]] void refuse(const fs::path& file, const std::string& what) {
  throw Failure(Error{ErrorCode::unsupported, file.string() + ": " + what, "modules.json"});
}

// pooling_mode_mean_tokens: true and the like, of which one must be set; or pooling_mode: "mean".
PoolingType read_pooling_mode(const fs::path& file) {
  const JsonDocument document = JsonDocument::read(file, kMaxBytes);
  const Json root = document.object();
  std::optional<PoolingType> type;
  int num_modes = 0;
  const auto mode = [&](std::string_view name, std::string_view word, PoolingType of_mode) {
    if (!root.boolean({name}).value_or(false) && root.text({"pooling_mode"}) != word) return;
    type = of_mode;
    ++num_modes;
  };
  mode("pooling_mode_lasttoken", "lasttoken", PoolingType::last);
  mode("pooling_mode_cls_token", "cls", PoolingType::cls);
  mode("pooling_mode_mean_tokens", "mean", PoolingType::mean);
  for (const std::string_view other :
       {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
        "pooling_mode_weightedmean_tokens"}) {
    if (root.boolean({other}).value_or(false))
      refuse(file, std::string(other) + " is not supported (lasttoken, cls_token, mean_tokens)");
  }
  if (num_modes != 1) refuse(file, "must set one of lasttoken, cls_token and mean_tokens");
  return *type;
}

Modules read_modules(const fs::path& model_dir) {
  Modules modules;
  const fs::path file = model_dir / "modules.json";
  if (!fs::is_directory(model_dir) || !fs::exists(file)) return modules;
  const JsonDocument document = JsonDocument::read(file, kMaxBytes);
  for (const Json one : document.root().items()) {
    const std::string type = one.need_text("type");
    const std::string name = type.substr(type.rfind('.') + 1);
    if (name == "Transformer") continue;
    if (name == "Normalize") {
      modules.normalizes = true;
    } else if (name == "Pooling") {
      const fs::path folder = one.need_text("path");
      if (folder.is_absolute() || folder.string().find("..") != std::string::npos)
        refuse(file, "path \"" + folder.string() + "\" leaves the model's folder");
      modules.type = read_pooling_mode(model_dir / folder / "config.json");
    } else {
      refuse(file, "module " + type + " is not supported (Transformer, Pooling, Normalize)");
    }
  }
  return modules;
}

int read_max_tokens(const fs::path& model_dir) {
  const fs::path file = model_dir / "sentence_bert_config.json";
  if (!fs::is_directory(model_dir) || !fs::exists(file)) return 0;
  const JsonDocument document = JsonDocument::read(file, kMaxBytes);
  return document.object().integer({"max_seq_length"}, {1, 1 << 28}).value_or(0);
}

[[noreturn]] void refuse_field(const std::string& field, const std::string& why) {
  throw Failure(Error{ErrorCode::invalid_argument, field + " " + why, field});
}

// It generates: what is said of vectors has no effect.
void check_generating(const PoolingOptions& options, const ModelConfig& config, bool generates) {
  if (!generates) {
    refuse_field("PoolingOptions::runner",
                 "generate: " + config.architecture +
                     " does not generate; leave it out, or use PoolingOptions::runner pooling");
  }
  const std::string because =
      "has no effect: the model generates; add PoolingOptions::runner pooling";
  if (options.type || options.use_activation) refuse_field("PoolingOptions::type", because);
  if (options.is_matryoshka || !options.matryoshka_dimensions.empty())
    refuse_field("PoolingOptions::is_matryoshka", because);
}

PoolingTask task_of(const PoolingOptions& options, const ModelConfig& config, PoolingTask published) {
  switch (options.convert) {
    case ConvertKind::embed:
      return PoolingTask::embed;
    case ConvertKind::classify:
      return PoolingTask::score;
    case ConvertKind::none:
      if (published != PoolingTask::none) return published;
      refuse_field("PoolingOptions::convert",
                   "none: " + config.architecture +
                       " is published to generate; use embed, classify or auto");
    case ConvertKind::automatic:
      break;
  }
  if (published != PoolingTask::none) return published;
  return options.classifier_tokens.empty() ? PoolingTask::embed : PoolingTask::score;
}

}  // namespace

PoolingConfig find_pooling(const fs::path& model_dir, const ModelConfig& config,
                           const PoolingOptions& options) {
  const Architecture* architecture = find_architecture(config.architecture);
  const PoolingTask published = architecture ? architecture->task : PoolingTask::none;
  const Modules modules = read_modules(model_dir);
  const bool asked = options.convert == ConvertKind::embed ||
                     options.convert == ConvertKind::classify || !options.classifier_tokens.empty();
  const bool found = published != PoolingTask::none || modules.type.has_value();
  if (options.runner == RunnerKind::generate && asked)
    refuse_field("PoolingOptions::runner",
                 "generate and PoolingOptions::convert contradict each other: remove one");
  if (options.runner == RunnerKind::generate ||
      (options.runner == RunnerKind::automatic && !asked && !found)) {
    check_generating(options, config, published == PoolingTask::none);
    return {};
  }
  PoolingConfig pooling{.task = task_of(options, config, published),
                        .type = is_encoder(config) ? PoolingType::cls : PoolingType::last,
                        .is_matryoshka = options.is_matryoshka,
                        .matryoshka_dimensions = options.matryoshka_dimensions,
                        .classifier_tokens = options.classifier_tokens,
                        .max_tokens = read_max_tokens(model_dir)};
  if (modules.type && pooling.task == PoolingTask::embed) {
    pooling.type = *modules.type;
    pooling.use_activation = modules.normalizes;
  }
  pooling.type = options.type.value_or(pooling.type);
  pooling.use_activation = options.use_activation.value_or(pooling.use_activation);
  return pooling;
}

std::string_view name_of(PoolingType type) {
  constexpr std::string_view kNames[] = {"last", "cls", "mean"};
  return kNames[static_cast<std::size_t>(type)];
}

std::string_view name_of(PoolingTask task) {
  constexpr std::string_view kNames[] = {"generate", "embed", "score"};
  return kNames[static_cast<std::size_t>(task)];
}

}  // namespace quire
