#include "app/flags/speculative_flags.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "app/flags/speculative_json.h"
#include "engine/size_text.h"

namespace quire {
namespace {

struct Field {
  const char *flag, *name, *type, *description;
  bool is_text;
};

constexpr Field kFields[] = {
    {"--speculative-method", "method", "NAME", "What guesses tokens: ngram, eagle, eagle3 or mtp; without it what the model's name says",
     true},
    {"--speculative-model", "model", "DIR", "Folder of the draft model, for eagle and eagle3",
     true},
    {"--num-speculative-tokens", "num_speculative_tokens", "N",
     "Guesses of a request in one step, at most", false},
    {"--ngram-prompt-lookup-max", "prompt_lookup_max", "N",
     "Longest suffix that ngram looks up; 5 where neither is given", false},
    {"--ngram-prompt-lookup-min", "prompt_lookup_min", "N", "Shortest suffix that ngram looks up",
     false},
    {"--speculative-disable-by-batch-size", "disable_by_batch_size", "N",
     "No guesses while more requests than this run", false},
    {"--speculative-draft-sample-method", "draft_sample_method", "NAME",
     "How a draft model's token is chosen: greedy, or probabilistic: drawn, and kept or replaced by "
     "rejection sampling",
     true},
};

SpeculativeConfig parse_or_throw(const std::string& flag, const std::string& json) {
  const auto parsed = parse_speculative_config(json);
  if (parsed.has_error()) throw CLI::ValidationError(flag, parsed.error().detail);
  return *parsed;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string number_of(const Field& field, const std::string& text) {
  const auto count = parse_count(text);
  if (count.has_error()) throw CLI::ValidationError(field.flag, count.error().detail);
  return std::to_string(*count);
}

std::string object_of(const std::map<std::string, std::string>& fields) {
  std::string json;
  for (const auto& [name, value] : fields)
    json += (json.empty() ? "{" : ", ") + quoted(name) + ": " + value;
  return json + "}";
}

}  // namespace

void add_speculative_flags(CLI::App& app, SpeculativeConfig& speculative) {
  CLI::Option* const whole =
      app.add_option_function<std::string>(
             "--speculative-config",
             [&speculative](const std::string& text) {
               speculative = parse_or_throw("--speculative-config", text);
             },
             "Tokens guessed and verified together, as vLLM's JSON object: {\"method\": "
             "\"ngram\", \"num_speculative_tokens\": 3, \"prompt_lookup_max\": 4, "
             "\"prompt_lookup_min\": 2}")
          ->type_name("JSON");
  // Options are read in their order here, whatever the command line's: the method comes first, or
  // follows from what the model is called.
  const auto given = std::make_shared<std::map<std::string, std::string>>();
  const auto take = [&speculative, given](const char* flag, const char* name, std::string value) {
    (*given)[name] = std::move(value);
    if (!given->contains("num_speculative_tokens")) return;
    if (!given->contains("method") && !given->contains("model"))
      throw CLI::RequiresError(flag, "--speculative-method");
    speculative = parse_or_throw(flag, object_of(*given));
  };
  for (const Field& field : kFields) {
    const auto read = [take, field](const std::string& text) {
      take(field.flag, field.name, field.is_text ? quoted(text) : number_of(field, text));
    };
    app.add_option_function<std::string>(field.flag, read, field.description)
        ->type_name(field.type)
        ->excludes(whole);
  }
  const auto adapt = [take](std::int64_t on) {
    take("--speculative-adaptive", "adaptive", on > 0 ? "true" : "false");
  };
  CLI::Option* const adaptive =
      app.add_flag_function("--speculative-adaptive,!--no-speculative-adaptive", adapt,
                            "As many guesses as pay, down to none (default but with "
                            "--deterministic); without it always as many as there can be")
          ->excludes(whole);
  CLI::Option* const count = app.get_option("--num-speculative-tokens");
  for (const Field& field : kFields)
    if (CLI::Option* const one = app.get_option(field.flag); one != count) one->needs(count);
  adaptive->needs(count);
}

}  // namespace quire
