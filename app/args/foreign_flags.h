#pragma once
// Flags of vLLM's (0.33) for things that there is no choice of here: accepted where what they ask
// for is what happens anyway, so that command lines and charts move over as they are.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire {

struct ForeignFlag {
  std::string_view name;    // "--swap-space"
  std::string_view values;  // what may be asked for, as in "auto|hf"; "*": anything; "+": several
                            // words of anything; "": a switch

  bool is_switch() const { return values.empty(); }
  bool is_list() const { return values == "+"; }
  // Throws CLI::ValidationError that says what may be asked for.
  void check(const std::string& value) const;
};

// Null: not such a flag.
const ForeignFlag* find_foreign_flag(std::string_view name);

// vLLM's short or other name of a flag that is here: "--tensor-parallel-size" of "-tp".
std::optional<std::string_view> own_name(std::string_view foreign);

// For each of vLLM's environment variables that is set and not read here: its name, and what has
// that meaning.
std::vector<std::pair<std::string, std::string>> unread_variables(const char* const* environment);

}  // namespace quire
