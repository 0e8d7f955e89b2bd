#pragma once
// What the name of a flag means to a command: its own flags, vLLM's that change nothing here, and
// the ways to say no to a switch.

#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quire {

struct ForeignFlag;

// Of a name in its long form and without dots.
struct FlagMeaning {
  const CLI::Option* option = nullptr;   // the command's own
  const ForeignFlag* foreign = nullptr;  // vLLM's, without effect here
  std::string denied = {};  // the switch that the name says no to; of neither: one that is off
                            // anyway

  bool is_negated() const { return !denied.empty(); }
  bool is_known() const { return option != nullptr || foreign != nullptr || is_negated(); }
  bool takes_value() const;
};
// As in vLLM, --no-x says no to --x, --disable-x to --enable-x and --enable-x to --disable-x.
FlagMeaning meaning_of(const CLI::App& app, const std::string& name);

bool is_switch(const CLI::Option& option);

// What to do instead of `flag`, ". Did you mean --x?" of the flag nearest to it, or `otherwise`.
// Never the opposite of what was meant.
std::string flag_hint(const CLI::App& app, const std::string& flag, const char* otherwise);

}  // namespace quire
