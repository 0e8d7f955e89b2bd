#pragma once
// Help as people read it: no marks of the parser's own ("{false}", "Excludes: --x") among the
// flags; a description says in parentheses what the default is.

#include <CLI/CLI.hpp>
#include <string>

namespace quire {

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    constexpr std::string_view kMark = "{false}";
    for (auto at = name.find(kMark); at != std::string::npos; at = name.find(kMark))
      name.erase(at, kMark.size());
    return name;
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (!option->get_option_text().empty()) return " " + option->get_option_text();
    if (option->get_type_size() == 0) return "";
    const bool is_list = option->get_expected_max() == CLI::detail::expected_max_vector_size;
    const std::string type = option->get_type_name();
    return (type.empty() ? "" : " " + type) + (is_list ? " ..." : "");
  }
};

}  // namespace quire
