#include "load/prompt_file.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/file.h"

namespace quire::load {
namespace {

namespace dom = simdjson::dom;

constexpr std::size_t kMaxFileBytes = std::size_t{4} << 30;
constexpr std::int64_t kMostTokens = 16 << 20;  // as --output-tokens has it

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Failure(ErrorCode::invalid_argument, where + ": " + what);
}

std::string question(const std::string& quoted) {
  return "{\"role\":\"user\",\"content\":" + quoted + "}";
}

FilePrompt read_line(dom::element row, bool completions, const std::string& where) {
  FilePrompt prompt;
  dom::element value;
  dom::array messages;
  const bool has_prompt = row["prompt"].get(value) == simdjson::SUCCESS;
  if (completions) {
    if (!has_prompt) refuse(where, "a JSON object with \"prompt\" is expected");
    prompt.prompt = simdjson::minify(value);
  } else if (row["messages"].get(messages) == simdjson::SUCCESS) {
    for (dom::element message : messages) prompt.messages.push_back(simdjson::minify(message));
  } else if (has_prompt && value.is_string()) {
    prompt.messages = {question(simdjson::minify(value))};
  } else {
    refuse(where, "a JSON object with \"messages\", or a text as \"prompt\", is expected");
  }
  if (row["max_tokens"].get(value) == simdjson::SUCCESS && !value.is_null()) {
    std::int64_t max_tokens = 0;
    const bool fits =
        value.get(max_tokens) == simdjson::SUCCESS && max_tokens >= 1 && max_tokens <= kMostTokens;
    if (!fits) refuse(where, fmt::format("max_tokens is a whole number from 1 to {}", kMostTokens));
    prompt.max_tokens = static_cast<int>(max_tokens);
  }
  return prompt;
}

std::vector<FilePrompt> read_lines(const std::string& text, bool completions,
                                   const std::string& file) {
  std::vector<FilePrompt> prompts;
  dom::parser parser;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const std::string where = file + ":" + std::to_string(number);
    dom::element row;
    if (parser.parse(line).get(row) != simdjson::SUCCESS) refuse(where, "this line is no JSON");
    prompts.push_back(read_line(row, completions, where));
  }
  return prompts;
}

std::vector<FilePrompt> read_share_gpt(const std::string& text, bool completions,
                                       const std::string& file) {
  dom::parser parser;
  dom::array entries;
  if (parser.parse(text).get(entries) != simdjson::SUCCESS) refuse(file, "this is no JSON array");
  std::vector<FilePrompt> prompts;
  std::size_t without = 0;
  for (dom::element entry : entries) {
    dom::array turns;
    if (entry["conversations"].get(turns) != simdjson::SUCCESS) {
      ++without;
      continue;
    }
    std::vector<std::string> questions;
    for (dom::element turn : turns) {
      std::string_view from;
      dom::element value;
      const bool asks = turn["from"].get(from) == simdjson::SUCCESS &&
                        (from == "human" || from == "user") &&
                        turn["value"].get(value) == simdjson::SUCCESS && value.is_string();
      if (asks) questions.push_back(simdjson::minify(value));
    }
    if (questions.empty()) continue;
    FilePrompt& prompt = prompts.emplace_back();
    if (completions) {
      prompt.prompt = questions.front();
      continue;
    }
    prompt.messages = {question(questions.front())};
    prompt.questions.assign(questions.begin() + 1, questions.end());
  }
  if (prompts.empty() && without > 0) refuse(file, "no entry has \"conversations\"");
  if (without > 0) {
    fmt::print(stderr, "{}: {} of {} entries have no \"conversations\" and are left out\n", file,
               without, entries.size());
  }
  return prompts;
}

}  // namespace

std::vector<FilePrompt> read_prompts(const std::filesystem::path& path, bool completions) {
  const std::string text = read_text_file(path, kMaxFileBytes);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_array = first != text.npos && text[first] == '[';
  auto prompts = is_array ? read_share_gpt(text, completions, path.string())
                          : read_lines(text, completions, path.string());
  if (prompts.empty()) refuse(path.string(), "there are no prompts in it");
  return prompts;
}

}  // namespace quire::load
