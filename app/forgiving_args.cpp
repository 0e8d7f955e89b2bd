#include "app/forgiving_args.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "app/flags_file.h"
#include "app/foreign_flags.h"
#include "base/nearest.h"

namespace quire {

namespace {

// --max_model_len=8k → --max-model-len=8k
std::string with_dashes(std::string text) {
  if (!text.starts_with("--")) return text;
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(text.find('='), text.size()));
  std::replace(text.begin(), end, '_', '-');
  return text;
}

// -tp=2 → --tensor-parallel-size=2
std::string renamed(const std::string& text) {
  const auto end = std::min(text.find('='), text.size());
  const auto name = own_name(std::string_view(text).substr(0, end));
  return name ? std::string(*name) + text.substr(end) : text;
}

void refuse_unknown(const CLI::App& app) {
  const std::vector<std::string> unknown = app.remaining();
  if (unknown.empty()) return;
  const auto flag = std::ranges::find_if(
      unknown, [](const std::string& text) { return text.starts_with('-'); });
  if (flag == unknown.end()) {
    throw CLI::ValidationError("\"" + unknown.front() + "\"", "one word too many");
  }
  const std::string name = flag->substr(0, flag->find('='));
  throw CLI::ValidationError(name, "no such flag" + flag_hint(app, name, "; --help lists them"));
}

}  // namespace

std::string flag_hint(const CLI::App& app, const std::string& flag, const char* otherwise) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  if (const auto advice = advice_instead_of(flag); !advice.empty()) return std::string(advice);
  const auto near = nearest(flag, views);
  return near ? ". Did you mean " + std::string(*near) + "?" : otherwise;
}

ForgivingArgs::ForgivingArgs(int argc, const char* const* given) {
  if (argc > 0) texts_.emplace_back(given[0]);
  for (int i = 1; i < argc; ++i) {
    std::string text = renamed(with_dashes(given[i]));
    const auto equals = text.find('=');
    const ForeignFlag* foreign = find_foreign_flag(std::string_view(text).substr(0, equals));
    if (foreign == nullptr) {
      texts_.push_back(std::move(text));
      continue;
    }
    without_effect.emplace_back(foreign->name);
    if (foreign->is_switch()) continue;
    const bool stands_apart = equals == text.npos;
    if (stands_apart && i + 1 == argc)
      throw CLI::ValidationError(std::string(foreign->name), "needs a value");
    foreign->check(stands_apart ? given[++i] : text.substr(equals + 1));
  }
  for (const std::string& text : texts_) argv.push_back(text.c_str());
}

std::vector<std::string> parse_forgivingly(CLI::App& app, int argc, const char* const* argv) {
  app.allow_extras();
  ForgivingArgs args(argc, argv);
  if (app.get_config_ptr() != nullptr)
    app.config_formatter(std::make_shared<FlagsFile>(app, args.without_effect));
  app.parse(static_cast<int>(args.argv.size()), args.argv.data());
  refuse_unknown(app);
  return std::move(args.without_effect);
}

}  // namespace quire
