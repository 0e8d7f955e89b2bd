#pragma once
// Prompts from a file: lines of JSON, or conversations in ShareGPT's form.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace quire::load {

// What a conversation begins with. All texts are JSON already.
struct FilePrompt {
  std::vector<std::string> messages;   // before the first request; their last is the first question
  std::string prompt;                  // for /v1/completions, instead
  std::vector<std::string> questions;  // the user's later turns, strings with their quotes
  std::optional<int> max_tokens;
};

// Lines of {"messages": […]} or {"prompt": "…"} (a first question, where messages are wanted) with
// or without "max_tokens"; or one array of {"conversations": [{"from": "human", "value": "…"}, …]}
// (ShareGPT), of which the human's turns are taken and those without any left out. Throws Failure
// with file and line or entry.
std::vector<FilePrompt> read_prompts(const std::filesystem::path& path, bool completions);

}  // namespace quire::load
