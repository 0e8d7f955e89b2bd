#include "app/flags/pooling_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <functional>
#include <utility>
#include <vector>

#include "base/json.h"

namespace quire {
namespace {

template <class T>
using Names = std::vector<std::pair<std::string, T>>;

template <class T>
void add_named(CLI::App& app, const std::string& flag, const Names<T>& names,
               std::function<void(const T&)> store, const std::string& description) {
  const auto take = [flag, names, store = std::move(store)](const std::string& text) {
    std::string choices;
    for (const auto& [name, value] : names) {
      if (name == text) return store(value);
      choices += (choices.empty() ? "" : ", ") + name;
    }
    throw CLI::ValidationError(flag, "\"" + text + "\" is none of " + choices);
  };
  app.add_option_function<std::string>(flag, take, description)->type_name("NAME");
}

void add_json(CLI::App& app, const std::string& flag, PoolingOptions& pooling,
              void (*read)(const std::string&, PoolingOptions&), const std::string& description) {
  const auto take = [flag, &pooling, read](const std::string& text) {
    try {
      read(text, pooling);
    } catch (const Failure& failure) {
      throw CLI::ValidationError(flag, failure.error().detail);
    }
  };
  app.add_option_function<std::string>(flag, take, description)->type_name("JSON");
}

PoolingType type_of(const Json& value) {
  std::string name(value.as_string());
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  if (name == "LAST") return PoolingType::last;
  if (name == "CLS") return PoolingType::cls;
  if (name == "MEAN") return PoolingType::mean;
  value.fail("is " + value.describe() + "; what works: \"LAST\", \"CLS\", \"MEAN\"");
}

// What vLLM's older --task meant, in today's two flags.
struct Task {
  RunnerKind runner;
  ConvertKind convert;
};

}  // namespace

void read_pooler_config(const std::string& json, PoolingOptions& pooling) {
  const JsonDocument document(json, {});
  for (const auto& [name, value] : document.object().members()) {
    if (name == "pooling_type" || name == "seq_pooling_type") {
      pooling.type = type_of(value);
    } else if (name == "use_activation" || name == "normalize" || name == "activation") {
      pooling.use_activation = value.as_boolean();
    } else {
      value.fail("is not supported; what works: pooling_type, use_activation");
    }
  }
}

void read_hf_overrides(const std::string& json, PoolingOptions& pooling) {
  const JsonDocument document(json, {});
  const auto texts = [&](std::string_view name) {
    return document.object().texts({name}).value_or(std::vector<std::string>());
  };
  for (const auto& [name, value] : document.object().members()) {
    if (name == "classifier_from_token") {
      pooling.classifier_tokens = texts(name);
    } else if (name == "is_matryoshka") {
      pooling.is_matryoshka = value.as_boolean();
    } else if (name == "matryoshka_dimensions") {
      pooling.matryoshka_dimensions = document.object().integers({name}, {1, 1 << 20});
      pooling.is_matryoshka = true;
    } else if (name == "is_original_qwen3_reranker") {
      value.as_boolean();  // classifier_from_token says it
    } else if (name == "architectures") {
      const auto classes = texts(name);
      if (classes.size() != 1 || !classes.front().ends_with("ForSequenceClassification"))
        value.fail("may only name a ...ForSequenceClassification here");
      pooling.convert = ConvertKind::classify;
    } else if (name.starts_with("rope_") || name == "max_position_embeddings") {
      value.fail("is not overridden here: write it into the model's config.json");
    } else {
      value.fail(
          "is not supported; what works: classifier_from_token, is_original_qwen3_reranker, "
          "is_matryoshka, matryoshka_dimensions, architectures");
    }
  }
}

void add_pooling_flags(CLI::App& app, PoolingOptions& pooling) {
  add_named<RunnerKind>(
      app, "--runner",
      {{"auto", RunnerKind::automatic},
       {"generate", RunnerKind::generate},
       {"pooling", RunnerKind::pooling}},
      [&pooling](const RunnerKind& kind) { pooling.runner = kind; },
      "What the model does: generate, or pooling, which serves embeddings and scores alone; auto: "
      "as its files say");
  add_named<ConvertKind>(
      app, "--convert",
      {{"auto", ConvertKind::automatic},
       {"none", ConvertKind::none},
       {"embed", ConvertKind::embed},
       {"classify", ConvertKind::classify}},
      [&pooling](const ConvertKind& kind) { pooling.convert = kind; },
      "What a pooling model is made of another: embed, classify, none; auto: as its class says");
  add_named<Task>(
      app, "--task",
      {{"auto", {RunnerKind::automatic, ConvertKind::automatic}},
       {"generate", {RunnerKind::generate, ConvertKind::automatic}},
       {"embed", {RunnerKind::pooling, ConvertKind::embed}},
       {"embedding", {RunnerKind::pooling, ConvertKind::embed}},
       {"classify", {RunnerKind::pooling, ConvertKind::classify}},
       {"score", {RunnerKind::pooling, ConvertKind::classify}}},
      [&pooling](const Task& task) {
        pooling.runner = task.runner;
        pooling.convert = task.convert;
      },
      "The two flags above in one word, as older vLLM has it: generate, embed, classify, score");
  app.get_option("--task")->excludes("--runner")->excludes("--convert");
  add_json(app, "--pooler-config", pooling, read_pooler_config,
           "How vectors are made, as vLLM's JSON object: {\"pooling_type\": \"MEAN\", "
           "\"use_activation\": false}");
  add_json(app, "--hf-overrides", pooling, read_hf_overrides,
           "What config.json should say of pooling: {\"classifier_from_token\": [\"no\", \"yes\"]}, "
           "{\"is_matryoshka\": true}");
}

}  // namespace quire
