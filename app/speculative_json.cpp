#include "app/speculative_json.h"

#include <algorithm>
#include <utility>

#include "base/json.h"

namespace quire {
namespace {

struct Parsed {
  SpeculativeConfig config;
  std::optional<int> lookup_min, lookup_max;
};

// With the names that vLLM has for the modules of single families.
constexpr std::pair<std::string_view, DraftMethod> kMethods[] = {
    {"ngram", DraftMethod::ngram},      {"eagle", DraftMethod::eagle},
    {"eagle3", DraftMethod::eagle3},    {"mtp", DraftMethod::mtp},
    {"deepseek_mtp", DraftMethod::mtp}, {"qwen3_next_mtp", DraftMethod::mtp},
    {"qwen3_5_mtp", DraftMethod::mtp},  {"glm4_moe_mtp", DraftMethod::mtp},
};

DraftMethod method_of(const Json& value) {
  const auto found = std::ranges::find(kMethods, value.as_string(),
                                       &std::pair<std::string_view, DraftMethod>::first);
  if (found == std::end(kMethods))
    value.fail("must be \"ngram\", \"eagle\", \"eagle3\" or \"mtp\", is " + value.describe() +
               ": no other method is built");
  return found->second;
}

DraftSampling draft_sampling_of(const Json& value) {
  if (value.as_string() == "greedy") return DraftSampling::greedy;
  if (value.as_string() == "probabilistic") return DraftSampling::probabilistic;
  value.fail("must be \"greedy\" or \"probabilistic\", is " + value.describe());
}

// False: the field is unknown.
bool read_field(std::string_view name, const Json& value, Parsed& parsed) {
  constexpr IntRange kCount{1, 128};
  const auto count = [&] { return static_cast<int>(value.as_integer(kCount)); };
  if (name == "method") {
    parsed.config.method = method_of(value);
  } else if (name == "model") {
    parsed.config.model = value.as_string();
  } else if (name == "num_speculative_tokens") {
    parsed.config.num_speculative_tokens = count();
  } else if (name == "prompt_lookup_min") {
    parsed.lookup_min = count();
  } else if (name == "prompt_lookup_max") {
    parsed.lookup_max = count();
  } else if (name == "adaptive") {
    parsed.config.adaptive = value.as_boolean();
  } else if (name == "disable_by_batch_size") {
    parsed.config.disable_by_batch_size = static_cast<int>(value.as_integer({1, 1 << 20}));
  } else if (name == "draft_sample_method") {
    parsed.config.draft_sampling = draft_sampling_of(value);
  } else if (name == "rejection_sample_method") {
    if (value.as_string() != "standard")
      value.fail("must be \"standard\", is " + value.describe() + ": nothing else is built");
  } else if (name == "draft_tensor_parallel_size") {
    if (count() != 1) value.fail("must be 1: a model runs whole on one device");
  } else {
    return false;
  }
  return true;
}

// Of the two lengths the one that is missing is the other; without both they are 5, as in vLLM.
void complete_lookup(const JsonDocument& document, Parsed& parsed) {
  constexpr int kDefaultLookup = 5;
  if (parsed.config.method != DraftMethod::ngram) {
    for (const char* name : {"prompt_lookup_min", "prompt_lookup_max"})
      if (document.object().has({name}))
        document.object().fail_at(name, "has no effect: only method \"ngram\" looks up tokens");
    return;
  }
  parsed.config.prompt_lookup_min =
      parsed.lookup_min.value_or(parsed.lookup_max.value_or(kDefaultLookup));
  parsed.config.prompt_lookup_max =
      parsed.lookup_max.value_or(parsed.lookup_min.value_or(kDefaultLookup));
}

}  // namespace

Result<SpeculativeConfig> parse_speculative_config(std::string_view json) try {
  const JsonDocument document(std::string(json), {});
  Parsed parsed;
  for (const auto& [name, value] : document.object().members()) {
    if (!read_field(name, value, parsed)) value.fail("is not a field of it");
  }
  document.object().at("method");
  document.object().at("num_speculative_tokens");
  complete_lookup(document, parsed);
  return parsed.config;
} catch (const Failure& failure) {
  return Error{ErrorCode::invalid_argument, failure.what(), "--speculative-config"};
}

}  // namespace quire
