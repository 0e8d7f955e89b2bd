#include "app/flags_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string_view>

#include "app/foreign_flags.h"
#include "app/forgiving_args.h"

namespace quire {

namespace {

[[noreturn]] void refuse(const std::string& why) { throw CLI::ValidationError("--config", why); }

// vLLM's files of flags are YAML.
bool looks_like_yaml(std::string_view line) {
  const auto word =
      line.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
  return word != line.npos && word > 0 && line[word] == ':';
}

[[noreturn]] void refuse_text(const std::string& text, const toml::parse_error& error) {
  const auto at = error.source().begin;
  std::istringstream lines(text);
  std::string line;
  for (unsigned number = 0; number < at.line; ++number) std::getline(lines, line);
  const char* advice = looks_like_yaml(line) ? " (the file is TOML, not YAML: flag = value)" : "";
  refuse(fmt::format("line {}, column {}: {}{}", at.line, at.column, error.description(), advice));
}

toml::table parsed(const std::string& text) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    refuse_text(text, error);
  }
}

std::string json_of(const toml::node& node) {
  std::ostringstream text;
  text << toml::json_formatter(node);
  return text.str();
}

std::string text_of(const std::string& name, const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto number = node.value_exact<std::int64_t>()) return std::to_string(*number);
  if (const auto number = node.value_exact<double>()) return fmt::format("{}", *number);
  if (const auto truth = node.value_exact<bool>()) return *truth ? "true" : "false";
  if (node.is_table()) return json_of(node);
  refuse(fmt::format("{} (line {}): expected a text, a number, true or false, a list or a table",
                     name, node.source().begin.line));
}

[[noreturn]] void refuse_key(const CLI::App& app, const std::string& name, const toml::node& node) {
  const auto line = node.source().begin.line;
  if (node.is_table()) {
    refuse(fmt::format("[{}] (line {}): the file has no sections; flags stand at its beginning",
                       name, line));
  }
  refuse(fmt::format("\"{}\" (line {}) is not a flag{}", name, line,
                     flag_hint(app, "--" + name, "; --help lists them")));
}

// The command line has a switch or leaves it out; only true and false say the same.
void check_switch(const CLI::Option& option, const std::string& name, const toml::node& node) {
  if (option.get_items_expected_max() == 0 && !node.is_boolean())
    refuse(fmt::format("{} (line {}) is true or false", name, node.source().begin.line));
}

std::vector<std::string> inputs_of(const std::string& name, const toml::node& node) {
  std::vector<std::string> inputs;
  if (const toml::array* list = node.as_array()) {
    for (const toml::node& one : *list) inputs.push_back(text_of(name, one));
  } else {
    inputs.push_back(text_of(name, node));
  }
  return inputs;
}

CLI::ConfigItem item_of(std::string name, std::vector<std::string> inputs) {
  CLI::ConfigItem item;
  item.name = std::move(name);
  item.inputs = std::move(inputs);
  return item;
}

std::string as_flag(std::string_view key) {
  std::string name(key);
  std::ranges::replace(name, '_', '-');
  return name;
}

}  // namespace

std::vector<CLI::ConfigItem> FlagsFile::from_config(std::istream& input) const {
  const std::string text(std::istreambuf_iterator<char>(input), {});
  const toml::table table = parsed(text);
  std::vector<CLI::ConfigItem> items;
  for (const auto& [key, node] : table) {
    const std::string name = as_flag(key.str());
    const FlagMeaning meaning = meaning_of(app_, "--" + name);
    if (!meaning.is_known()) refuse_key(app_, name, node);
    if (meaning.option == nullptr) {
      const ForeignFlag* foreign = meaning.is_negated ? nullptr : meaning.foreign;
      if (foreign != nullptr && !foreign->is_switch()) foreign->check(text_of(name, node));
      without_effect_.push_back("--" + name);
      continue;
    }
    check_switch(*meaning.option, name, node);
    if (meaning.is_negated) {
      const bool is_on = !node.value_exact<bool>().value_or(true);
      items.push_back(
          item_of(name.substr(std::string_view("no-").size()), {is_on ? "true" : "false"}));
      continue;
    }
    std::vector<std::string> inputs = inputs_of(name, node);
    if (!inputs.empty()) items.push_back(item_of(name, std::move(inputs)));
  }
  return items;
}

std::string toml_string(const std::string& text) {
  std::ostringstream quoted;
  const toml::value<std::string> value(text);
  quoted << toml::toml_formatter(value, toml::format_flags::allow_unicode_strings);
  return quoted.str();
}

}  // namespace quire
