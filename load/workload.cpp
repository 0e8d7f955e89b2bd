#include "load/workload.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <random>
#include <string_view>

#include "base/error.h"

namespace quire::load {
namespace {

constexpr std::uint64_t kPrefixSalt = 0x9e3779b97f4a7c15u;
constexpr std::uint64_t kInputSalt = 0x51a7, kOutputSalt = 0x0c7e;

std::string json_string(std::string_view text) {
  return boost::json::serialize(boost::json::string_view(text.data(), text.size()));
}

std::string message(std::string_view role, const std::string& content_json) {
  return "{\"role\":\"" + std::string(role) + "\",\"content\":" + content_json + "}";
}

std::string joined(const std::string& first, const std::string& second) {
  return first.empty() || second.empty() ? first + second : first + ' ' + second;
}

void check(const WorkloadOptions& o) {
  const auto refuse = [](const char* what) { throw Failure(ErrorCode::invalid_argument, what); };
  if (!o.prompts.empty() && !o.trace.empty()) refuse("--prompts and --trace exclude each other");
  if (o.turns > 1 && o.completions) refuse("--turns needs chat, without --completions");
  if (o.turns > 1 && !o.trace.empty()) refuse("a --trace has requests of one turn, not --turns");
}

}  // namespace

Workload::Workload(WorkloadOptions options)
    : options_(std::move(options)),
      path_(options_.completions ? "/v1/completions" : "/v1/chat/completions"),
      text_(options_.tokenizer),
      shared_prefix_(text_.make(options_.shared_prefix_length, options_.seed ^ kPrefixSalt)) {
  check(options_);
  if (!options_.prompts.empty()) prompts_ = read_prompts(options_.prompts, options_.completions);
  if (!options_.trace.empty()) trace_ = read_trace(options_.trace);
}

std::uint64_t Workload::seed_of(std::uint64_t index, std::size_t turn) const {
  return options_.seed * 1'000'003u + index + (static_cast<std::uint64_t>(turn) << 40);
}

int Workload::spread(int mean, std::uint64_t seed) const {
  std::mt19937_64 random(seed);
  if (options_.range_ratio > 0) {
    const double reach = options_.range_ratio * mean;
    std::uniform_real_distribution<double> even(mean - reach, mean + reach);
    return std::max(1, static_cast<int>(std::lround(even(random))));
  }
  if (options_.length_spread <= 0) return mean;
  const double sigma = options_.length_spread;
  std::normal_distribution<double> normal;
  const double length = mean * std::exp(sigma * normal(random) - sigma * sigma / 2);
  return static_cast<int>(std::lround(std::clamp(length, 1.0, 8.0 * mean)));
}

int Workload::turns(std::uint64_t index) const {
  if (prompts_.empty()) return trace_.empty() ? options_.turns : 1;
  const auto later = prompts_[index % prompts_.size()].questions.size();
  return static_cast<int>(
      std::min<std::size_t>(later + 1, static_cast<std::size_t>(options_.turns)));
}

// Blocks with the same id are the same text wherever they stand, so that a server's cache finds
// what it found when the trace was made.
std::string Workload::traced_prompt(const TraceRow& row, std::uint64_t index) const {
  std::string text;
  int left = row.input_tokens;
  for (const std::uint64_t block : row.blocks) {
    const int length = std::min(left, kTraceBlockTokens);
    if (length == 0) break;
    text = joined(text, text_.make(length, options_.seed ^ (block * kPrefixSalt)));
    left -= length;
  }
  return joined(text, text_.make(left, seed_of(index, 0)));
}

std::string Workload::question(std::uint64_t index, std::size_t turn) const {
  if (!trace_.empty()) return traced_prompt(trace_[index % trace_.size()], index);
  const std::uint64_t seed = seed_of(index, turn);
  const std::string own = text_.make(spread(options_.input_length, seed ^ kInputSalt), seed);
  return turn == 0 ? joined(shared_prefix_, own) : own;
}

int Workload::max_tokens(std::uint64_t index, std::size_t turn) const {
  if (!trace_.empty()) return std::max(1, trace_[index % trace_.size()].output_tokens);
  if (!prompts_.empty()) {
    return prompts_[index % prompts_.size()].max_tokens.value_or(options_.output_tokens);
  }
  return spread(options_.output_tokens, seed_of(index, turn) ^ kOutputSalt);
}

std::string Workload::messages(std::uint64_t index, std::span<const std::string> answers) const {
  std::string list;
  const auto add = [&](const std::string& one) { list += (list.empty() ? "" : ",") + one; };
  const FilePrompt* const prompt = prompts_.empty() ? nullptr : &prompts_[index % prompts_.size()];
  if (prompt != nullptr) {
    for (const std::string& one : prompt->messages) add(one);
  } else {
    add(message("user", json_string(question(index, 0))));
  }
  for (std::size_t i = 0; i < answers.size(); ++i) {
    add(message("assistant", json_string(answers[i])));
    add(message("user",
                prompt != nullptr ? prompt->questions.at(i) : json_string(question(index, i + 1))));
  }
  return list;
}

std::string Workload::body(std::uint64_t index, std::span<const std::string> answers) const {
  std::string body = "{\"model\":" + json_string(options_.model) + ",";
  if (!options_.completions) {
    body += "\"messages\":[" + messages(index, answers) + "]";
  } else if (!prompts_.empty()) {
    body += "\"prompt\":" + prompts_[index % prompts_.size()].prompt;
  } else {
    body += "\"prompt\":" + json_string(question(index, 0));
  }
  body += ",\"max_tokens\":" + std::to_string(max_tokens(index, answers.size()));
  body += ",\"temperature\":" + std::to_string(options_.temperature);
  if (options_.ignore_eos) body += ",\"ignore_eos\":true";
  return body + ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}";
}

}  // namespace quire::load
