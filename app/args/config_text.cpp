#include "app/args/config_text.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <string_view>

#include "app/args/flags_file.h"

namespace quire {

namespace {

// Say nothing that lasts, or would read the file again.
constexpr std::array<std::string_view, 3> kLeftOut{"help", "config", "print-config"};

bool is_secret(std::string_view name) { return name.ends_with("api-key"); }

std::string value_of(const CLI::Option& option) {
  const std::vector<std::string>& given = option.results();
  if (option.get_items_expected_max() == 0) {
    // A name that switches off is written as it is on the command line: there, or not.
    const bool switches_off = option.get_fnames().size() == option.get_lnames().size();
    return (given.back() == "true") != switches_off ? "true" : "false";
  }
  if (given.size() == 1) return toml_string(given.front());
  std::string list;
  for (const std::string& one : given) list += (list.empty() ? "[" : ", ") + toml_string(one);
  return list + "]";
}

// Lines of comment, broken at blanks.
std::string commented(std::string_view text) {
  constexpr std::size_t kWidth = 98;
  std::string lines;
  while (!text.empty()) {
    std::size_t end = text.size() <= kWidth ? text.size() : text.rfind(' ', kWidth);
    if (end == text.npos) end = std::min(text.find(' '), text.size());
    lines.append("# ").append(text.substr(0, end)).append("\n");
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return lines;
}

std::string line_of(const CLI::Option& option, const std::string& name) {
  if (option.count() == 0) return "#" + name + (option.get_items_expected_max() == 0 ? " = true\n" : " = \n");
  if (is_secret(name)) return "#" + name + " = given, not shown\n";
  return name + " = " + value_of(option) + "\n";
}

}  // namespace

std::string config_text(const CLI::App& app) {
  std::string text;
  for (const std::string& group : app.get_groups()) {
    std::string part;
    const auto of_group = app.get_options([&group](const CLI::Option* option) {
      return option->get_group() == group && !option->get_lnames().empty();
    });
    for (const CLI::Option* option : of_group) {
      const std::string name = option->get_single_name();
      if (std::ranges::find(kLeftOut, name) != kLeftOut.end()) continue;
      part += "\n" + commented(option->get_description()) + line_of(*option, name);
    }
    if (!part.empty()) text += (text.empty() ? "## " : "\n## ") + group + "\n" + part;
  }
  return text;
}

}  // namespace quire
