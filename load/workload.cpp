#include "load/workload.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <fstream>
#include <string_view>

#include "base/error.h"

namespace quire::load {
namespace {

constexpr std::array<std::string_view, 32> kWords = {
    "river",  "copper", "seven",  "walk",   "light",  "stone",  "market", "blue",
    "under",  "travel", "paper",  "quiet",  "garden", "number", "cloud",  "field",
    "winter", "signal", "window", "open",   "bright", "seldom", "forty",  "engine",
    "letter", "round",  "north",  "sudden", "silver", "answer", "slow",   "harbor"};

std::string random_words(int count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (i != 0) text += ' ';
    text += kWords[random() % kWords.size()];
  }
  return text;
}

std::string json_string(std::string_view text) {
  return boost::json::serialize(boost::json::string_view(text.data(), text.size()));
}

}  // namespace

Workload::Workload(WorkloadOptions options)
    : options_(std::move(options)),
      path_(options_.completions ? "/v1/completions" : "/v1/chat/completions"),
      shared_prefix_(
          random_words(options_.shared_prefix_words, options_.seed ^ 0x9e3779b97f4a7c15u)) {
  if (options_.prompts.empty()) return;
  std::ifstream file(options_.prompts);
  if (!file) throw Failure(ErrorCode::not_found, "cannot read " + options_.prompts.string());
  simdjson::dom::parser parser;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty()) continue;
    const char* field = options_.completions ? "prompt" : "messages";
    simdjson::dom::element row, value;
    if (parser.parse(line).get(row) != simdjson::SUCCESS ||
        row[field].get(value) != simdjson::SUCCESS) {
      throw Failure(ErrorCode::invalid_argument,
                    options_.prompts.string() + ":" + std::to_string(number) +
                        ": a JSON object with \"" + field + "\" is expected");
    }
    Prompt prompt{.field = "\"" + std::string(field) + "\":" + simdjson::minify(value),
                  .max_tokens = {}};
    std::int64_t max_tokens = 0;
    if (row["max_tokens"].get(max_tokens) == simdjson::SUCCESS) {
      prompt.max_tokens = static_cast<int>(max_tokens);
    }
    prompts_.push_back(std::move(prompt));
  }
  if (prompts_.empty()) {
    throw Failure(ErrorCode::invalid_argument, options_.prompts.string() + " has no prompts");
  }
}

int Workload::spread(int mean, std::uint64_t index, std::uint64_t salt) const {
  if (options_.length_spread <= 0) return mean;
  const double sigma = options_.length_spread;
  std::mt19937_64 random((options_.seed * 1'000'003u + index) ^ salt);
  std::normal_distribution<double> normal;
  const double length = mean * std::exp(sigma * normal(random) - sigma * sigma / 2);
  return static_cast<int>(std::lround(std::clamp(length, 1.0, 8.0 * mean)));
}

std::string Workload::synthetic_prompt(std::uint64_t index) const {
  std::string text = shared_prefix_;
  if (!text.empty()) text += ' ';
  return text + random_words(spread(options_.input_words, index, 0x51a7), options_.seed * 1'000'003u + index);
}

std::string Workload::body(std::uint64_t index) const {
  std::string body = "{\"model\":" + json_string(options_.model) + ",";
  int max_tokens = spread(options_.output_tokens, index, 0x0c7e);
  if (!prompts_.empty()) {
    const Prompt& prompt = prompts_[index % prompts_.size()];
    body += prompt.field;
    max_tokens = prompt.max_tokens.value_or(options_.output_tokens);
  } else if (options_.completions) {
    body += "\"prompt\":" + json_string(synthetic_prompt(index));
  } else {
    body +=
        "\"messages\":[{\"role\":\"user\",\"content\":" + json_string(synthetic_prompt(index)) + "}]";
  }
  body += ",\"max_tokens\":" + std::to_string(max_tokens);
  body += ",\"temperature\":" + std::to_string(options_.temperature);
  if (options_.ignore_eos) body += ",\"ignore_eos\":true";
  return body + ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}";
}

}  // namespace quire::load
