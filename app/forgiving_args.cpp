#include "app/forgiving_args.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <string_view>

#include "base/nearest.h"

namespace quire {

namespace {

// Code of a checkpoint is never run, requests are logged only on demand, there is no uvicorn.
constexpr std::array<std::string_view, 6> kWithoutEffect{
    "--trust-remote-code", "--disable-log-requests",       "--no-enable-log-requests",
    "--disable-log-stats", "--disable-uvicorn-access-log", "--disable-fastapi-docs"};

// --max_model_len=8k → --max-model-len=8k
std::string with_dashes(std::string text) {
  if (!text.starts_with("--")) return text;
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(text.find('='), text.size()));
  std::replace(text.begin(), end, '_', '-');
  return text;
}

}  // namespace

ForgivingArgs::ForgivingArgs(int argc, const char* const* given) {
  for (int i = 0; i < argc; ++i) {
    std::string text = i == 0 ? given[i] : with_dashes(given[i]);
    const bool idle = std::ranges::find(kWithoutEffect, text) != kWithoutEffect.end();
    (idle ? without_effect : texts_).push_back(std::move(text));
  }
  for (const std::string& text : texts_) argv.push_back(text.c_str());
}

void refuse_unknown(const CLI::App& app) {
  const std::vector<std::string> unknown = app.remaining();
  if (unknown.empty()) return;
  const auto flag = std::ranges::find_if(
      unknown, [](const std::string& text) { return text.starts_with('-'); });
  if (flag == unknown.end()) {
    throw CLI::ValidationError("\"" + unknown.front() + "\"", "one word too many");
  }
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string name = flag->substr(0, flag->find('='));
  const auto near = nearest(name, views);
  throw CLI::ValidationError(name, "no such flag" + (near ? ". Did you mean " + std::string(*near) + "?"
                                                          : std::string("; --help lists them")));
}

}  // namespace quire
