#pragma once
// --config: a TOML 1.0 file of a command's flags, without the leading dashes, as forgiving as the
// command line. A flag that takes JSON may be written as a table, one that is repeated as a list.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace quire {

class FlagsFile final : public CLI::Config {
 public:
  // Both must outlive it. What the file says without effect is added to `without_effect`.
  FlagsFile(const CLI::App& app, std::vector<std::string>& without_effect)
      : app_(app), without_effect_(without_effect) {}

  // Throws CLI::ValidationError with the line of what is not TOML, or the key that is no flag.
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;
  // Nothing writes by it: config_text.h has comments, too.
  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return {}; }

 private:
  const CLI::App& app_;
  std::vector<std::string>& without_effect_;
};

// Text as TOML quotes it.
std::string toml_string(const std::string& text);

}  // namespace quire
