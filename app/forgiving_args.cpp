#include "app/forgiving_args.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>

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

// ". Did you mean --x?", or where to look.
std::string hint(const CLI::App& app, const std::string& flag, const char* otherwise) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  const auto near = nearest(flag, views);
  return near ? ". Did you mean " + std::string(*near) + "?" : otherwise;
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
  throw CLI::ValidationError(name, "no such flag" + hint(app, name, "; --help lists them"));
}

// A TOML file of flags, as forgiving as the command line.
class ForgivingConfig final : public CLI::ConfigTOML {
 public:
  explicit ForgivingConfig(const CLI::App& app) : app_(app) {}
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> items = CLI::ConfigTOML::from_config(input);
    for (CLI::ConfigItem& item : items) {
      if (!item.parents.empty())
        throw CLI::ValidationError("--config", "[" + item.parents.front() +
                                                   "]: the file has no sections; flags stand at "
                                                   "its beginning");
      std::ranges::replace(item.name, '_', '-');
      if (app_.get_option_no_throw("--" + item.name) != nullptr) continue;
      throw CLI::ValidationError(
          "--config", "\"" + item.name + "\" is not a flag" +
                          hint(app_, "--" + item.name, "; --help lists them"));
    }
    return items;
  }

 private:
  const CLI::App& app_;
};

}  // namespace

ForgivingArgs::ForgivingArgs(int argc, const char* const* given) {
  for (int i = 0; i < argc; ++i) {
    std::string text = i == 0 ? given[i] : with_dashes(given[i]);
    const bool idle = std::ranges::find(kWithoutEffect, text) != kWithoutEffect.end();
    (idle ? without_effect : texts_).push_back(std::move(text));
  }
  for (const std::string& text : texts_) argv.push_back(text.c_str());
}

std::vector<std::string> parse_forgivingly(CLI::App& app, int argc, const char* const* argv) {
  app.allow_extras();
  if (app.get_config_ptr() != nullptr) app.config_formatter(std::make_shared<ForgivingConfig>(app));
  ForgivingArgs args(argc, argv);
  app.parse(static_cast<int>(args.argv.size()), args.argv.data());
  refuse_unknown(app);
  return std::move(args.without_effect);
}

}  // namespace quire
