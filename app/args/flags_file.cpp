#include "app/args/flags_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

#include "app/args/flag_advice.h"
#include "app/args/flag_meaning.h"
#include "app/args/foreign_flags.h"
#include "base/json_text.h"

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

// On one line, which toml++'s own is not.
void append_json(std::string& out, const toml::node& node) {
  const char* between = "";
  if (const toml::table* table = node.as_table()) {
    out += '{';
    for (const auto& [key, value] : *table) {
      out += std::exchange(between, ",");
      append_json_text(out, key.str());
      out += ':';
      append_json(out, value);
    }
    out += '}';
  } else if (const toml::array* list = node.as_array()) {
    out += '[';
    for (const toml::node& one : *list) {
      out += std::exchange(between, ",");
      append_json(out, one);
    }
    out += ']';
  } else {
    if (const auto number = node.value_exact<double>(); number && !std::isfinite(*number))
      refuse(fmt::format("line {}: {} is no number of JSON", node.source().begin.line, *number));
    std::ostringstream text;
    text << toml::json_formatter(node);
    out += text.str();
  }
}

std::string json_of(const toml::node& node) {
  std::string json;
  append_json(json, node);
  return json;
}

std::string text_of(const std::string& name, const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto number = node.value_exact<std::int64_t>()) return std::to_string(*number);
  if (const auto number = node.value_exact<double>()) return fmt::format("{}", *number);
  if (const auto truth = node.value_exact<bool>()) return *truth ? "true" : "false";
  if (node.is_table() || node.is_array()) return json_of(node);
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
bool truth_of(const std::string& name, const toml::node& node) {
  if (node.is_boolean()) return *node.value_exact<bool>();
  refuse(fmt::format("{} (line {}) is true or false", name, node.source().begin.line));
}

std::vector<std::string> inputs_of(const std::string& name, const toml::node& node, bool is_json) {
  std::vector<std::string> inputs;
  if (const toml::array* list = is_json ? nullptr : node.as_array()) {
    for (const toml::node& one : *list) inputs.push_back(text_of(name, one));
    // Without any, who wrote it would have a server that asks for none.
    if (inputs.empty() && name.ends_with("api-key"))
      refuse(fmt::format("{} (line {}) is a list of none", name, node.source().begin.line));
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

// A flag of vLLM's with no effect, or the switch that is off anyway; as the command line has them.
void check_foreign(const FlagMeaning& meaning, const std::string& name, const toml::node& node) {
  if (meaning.takes_value()) {
    meaning.foreign->check(text_of(name, node));
  } else {
    truth_of(name, node);
  }
}

}  // namespace

std::vector<CLI::ConfigItem> FlagsFile::from_config(std::istream& input) const {
  const std::string text(std::istreambuf_iterator<char>(input), {});
  const toml::table table = parsed(text);
  std::vector<CLI::ConfigItem> items;
  std::map<const CLI::Option*, std::string> said;
  for (const auto& [key, node] : table) {
    const std::string name = as_flag(key.str());
    const FlagMeaning meaning = meaning_of(app_, "--" + name);
    const bool is_off = is_switch_that_is_off("--" + name) && node.value_exact<bool>() == false;
    if (!meaning.is_known() && !is_off) refuse_key(app_, name, node);
    if (meaning.option == nullptr) {
      if (!is_off) check_foreign(meaning, name, node);
      without_effect_.push_back("--" + name);
      continue;
    }
    if (const auto [earlier, is_first] = said.emplace(meaning.option, name); !is_first) {
      refuse(fmt::format("{} (line {}) and {} are one flag", name, node.source().begin.line,
                         earlier->second));
    }
    if (meaning.is_negated()) {
      items.push_back(item_of(meaning.denied.substr(2), {truth_of(name, node) ? "false" : "true"}));
      continue;
    }
    if (!meaning.takes_value()) truth_of(name, node);
    const bool is_json = meaning.option->get_type_name() == "JSON";
    std::vector<std::string> inputs = inputs_of(name, node, is_json);
    if (is_json && inputs == std::vector<std::string>{"null"}) continue;
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
