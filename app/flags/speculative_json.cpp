#include "app/flags/speculative_json.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>
#include <string_view>
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

// Of vLLM's fields, those that nothing here answers to: harmless with the value that changes
// nothing, which is null for all.
struct Foreign {
  std::string_view name;
  std::string_view harmless;  // JSON, besides null
  std::string_view why;
};
constexpr std::string_view kSuffix = "is of method \"suffix\", which is not built";
constexpr std::string_view kSynthetic = "is of synthetic acceptance, which is not built";
constexpr std::string_view kOneServer = "is the server's for target and draft alike";
constexpr Foreign kForeign[] = {
    {"attention_backend", "", kOneServer},
    {"code_revision", "", "no code is fetched with a model"},
    {"disable_eagle_block_drop", "false",
     "hits keep their last block where the number of drafts adapts (\"adaptive\")"},
    {"draft_load_config", "", kOneServer},
    {"dspark_draft_topk", "", "is of method \"dspark\", which is not built"},
    {"enable_adaptive_verification", "false", "is of method \"dspark\"; see \"adaptive\""},
    {"enforce_eager", "false", kOneServer},
    {"index_share_for_mtp_iteration", "", "there are no sparse indices to share"},
    {"kv_cache_dtype", "\"auto\"", kOneServer},
    {"max_model_len", "", kOneServer},
    {"moe_backend", "\"auto\"", kOneServer},
    {"num_speculative_tokens_per_batch_size", "",
     "is not built: \"adaptive\" chooses the number by what it measures"},
    {"parallel_drafting", "false", "is not built: drafts are made one after the other"},
    {"quantization", "", "is not built: a draft's weights are plain floats"},
    {"revision", "", "is not built: fetch that revision with quire pull, and name its folder"},
    {"suffix_decoding_max_cached_requests", "10000", kSuffix},
    {"suffix_decoding_max_spec_factor", "1", kSuffix},
    {"suffix_decoding_max_tree_depth", "24", kSuffix},
    {"suffix_decoding_min_token_prob", "0.1", kSuffix},
    {"synthetic_acceptance_length", "", kSynthetic},
    {"synthetic_acceptance_rates", "", kSynthetic},
    {"tensor_parallel_size", "", "vLLM's field is draft_tensor_parallel_size"},
    {"use_heterogeneous_vocab", "false", "a draft's tokens must be the target's"},
    {"use_local_argmax_reduction", "false", "no draft is divided among ranks"},
};

bool is_harmless(const Json& value, std::string_view harmless) {
  if (value.is_null()) return true;
  if (value.kind() == Json::Kind::number && !harmless.empty())
    return value.as_number() == std::strtod(std::string(harmless).c_str(), nullptr);
  return value.describe() == harmless;
}

// False: the field is unknown.
bool pass_foreign(std::string_view name, const Json& value) {
  const auto found = std::ranges::find(kForeign, name, &Foreign::name);
  if (found == std::end(kForeign)) return false;
  if (is_harmless(value, found->harmless)) return true;
  const bool is_missing = found->why.starts_with("is ");
  value.fail((is_missing ? "" : "has no effect here: ") + std::string(found->why) +
             (found->harmless.empty() ? "" : "; " + std::string(found->harmless) + " is taken"));
}

DraftSampling draft_sampling_of(const Json& value) {
  if (value.as_string() == "greedy") return DraftSampling::greedy;
  if (value.as_string() == "probabilistic") return DraftSampling::probabilistic;
  value.fail("must be \"greedy\" or \"probabilistic\", is " + value.describe());
}

constexpr std::string_view kOwn[] = {
    "adaptive",
    "disable_by_batch_size",
    "disable_padded_drafter_batch",
    "draft_sample_method",
    "draft_tensor_parallel_size",
    "method",
    "model",
    "num_speculative_tokens",
    "prompt_lookup_max",
    "prompt_lookup_min",
    "rejection_sample_method",
};

bool is_own(std::string_view name) { return std::ranges::find(kOwn, name) != std::end(kOwn); }

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
  } else if (name == "disable_padded_drafter_batch") {
    value.as_boolean();  // batches are never padded
  } else if (name == "draft_sample_method") {
    parsed.config.draft_sampling = draft_sampling_of(value);
  } else if (name == "rejection_sample_method") {
    if (value.as_string() != "standard")
      value.fail("must be \"standard\", is " + value.describe() + ": nothing else is built");
  } else if (name == "draft_tensor_parallel_size") {
    if (count() != 1) value.fail("must be 1: a draft model is not divided among ranks, the first has it whole");
  } else {
    return false;
  }
  return true;
}

// As vLLM guesses it, by what the draft model is called; MTP modules have one pass each.
void complete_method(const JsonDocument& document, SpeculativeConfig& config) {
  const std::string& model = config.model;
  const bool says_ngram = model == "ngram" || model == "[ngram]";
  if (!document.object().has({"method"})) {
    std::string name = model.substr(model.find_last_of('/', model.size() - 2) + 1);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    const auto names = [&](std::string_view part) { return name.find(part) != name.npos; };
    config.method = says_ngram                            ? DraftMethod::ngram
                    : names("eagle3") || names("eagle-3") ? DraftMethod::eagle3
                    : names("eagle")                      ? DraftMethod::eagle
                                                          : DraftMethod::none;
    if (config.method == DraftMethod::none)
      document.object().fail_at("method",
                                "is missing: \"ngram\", \"eagle\", \"eagle3\" or \"mtp\"");
  }
  if (says_ngram && config.method == DraftMethod::ngram) config.model.clear();
  if (config.method == DraftMethod::mtp && config.num_speculative_tokens == 0)
    config.num_speculative_tokens = 1;
  const bool is_beside = config.uses_draft_model() && config.method != DraftMethod::mtp;
  if (config.num_speculative_tokens == 0 && (!is_beside || model.empty()))
    document.object().at("num_speculative_tokens");
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
  std::set<std::string_view> given;
  for (const auto& [name, value] : document.object().members()) {
    if (!given.insert(name).second) value.fail("is given twice");
    if (is_own(name) && value.is_null()) continue;  // as absent
    if (!read_field(name, value, parsed) && !pass_foreign(name, value))
      value.fail("is not a field of it");
  }
  complete_method(document, parsed.config);
  complete_lookup(document, parsed);
  return parsed.config;
} catch (const Failure& failure) {
  return Error{ErrorCode::invalid_argument, failure.what(), "--speculative-config"};
}

}  // namespace quire
