#include "app/speculative_json.h"

#include "base/json.h"

namespace quire {
namespace {

struct Parsed {
  SpeculativeConfig config;
  std::optional<int> lookup_min, lookup_max;
};

// False: the field is unknown.
bool read_field(std::string_view name, const Json& value, Parsed& parsed) {
  constexpr IntRange kCount{1, 1 << 20};
  const auto count = [&] { return static_cast<int>(value.as_integer(kCount)); };
  if (name == "method") {
    if (value.as_string() != "ngram")
      value.fail("must be \"ngram\", is " + value.describe() + ": no other method is built");
    parsed.config.method = DraftMethod::ngram;
  } else if (name == "num_speculative_tokens") {
    parsed.config.num_speculative_tokens = count();
  } else if (name == "prompt_lookup_min") {
    parsed.lookup_min = count();
  } else if (name == "prompt_lookup_max") {
    parsed.lookup_max = count();
  } else {
    return false;
  }
  return true;
}

}  // namespace

// Of the two lengths the one that is missing is the other; without both they are 5, as in vLLM.
Result<SpeculativeConfig> parse_speculative_config(std::string_view json) try {
  constexpr int kDefaultLookup = 5;
  const JsonDocument document(std::string(json), {});
  Parsed parsed;
  for (const auto& [name, value] : document.object().members()) {
    if (!read_field(name, value, parsed)) value.fail("is not a field of it");
  }
  document.object().at("method");
  document.object().at("num_speculative_tokens");
  parsed.config.prompt_lookup_min =
      parsed.lookup_min.value_or(parsed.lookup_max.value_or(kDefaultLookup));
  parsed.config.prompt_lookup_max =
      parsed.lookup_max.value_or(parsed.lookup_min.value_or(kDefaultLookup));
  return parsed.config;
} catch (const Failure& failure) {
  return Error{ErrorCode::invalid_argument, failure.what(), "--speculative-config"};
}

}  // namespace quire
