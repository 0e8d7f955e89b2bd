#pragma once
// Command lines as people bring them from elsewhere: underscores for dashes, flags of vLLM's that
// change nothing here, its short and dotted names, slips of the finger.

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quire {

struct ForeignFlag;

// What a flag's name, in its long form and without dots, means to a command.
struct FlagMeaning {
  const CLI::Option* option = nullptr;   // the command's own
  const ForeignFlag* foreign = nullptr;  // vLLM's, without effect here
  bool is_negated = false;               // --no-x of a switch; of neither: of one that is off anyway

  bool is_known() const { return option != nullptr || foreign != nullptr || is_negated; }
  bool takes_value() const;
};
FlagMeaning meaning_of(const CLI::App& app, const std::string& name);

// A command line in the words of `app`. A flag that needs a value never takes the next flag as one,
// short flags are not bundled. Throws CLI::ValidationError for a flag that `app` does not know, the
// first by name and with the flag that was probably meant, and for what a flag of vLLM's asks for
// and is not offered.
struct ForgivingArgs {
  ForgivingArgs(const CLI::App& app, int argc, const char* const* argv);
  ForgivingArgs(const ForgivingArgs&) = delete;
  ForgivingArgs& operator=(const ForgivingArgs&) = delete;

  std::vector<const char*> argv;            // to parse; points into texts_
  std::vector<std::string> without_effect;  // taken out: there is nothing here to switch on or off

 private:
  std::vector<std::string> texts_;
};

// What to do instead of `flag`, ". Did you mean --x?" of the flag nearest to `flag`, or `otherwise`.
std::string flag_hint(const CLI::App& app, const std::string& flag, const char* otherwise);

// app.parse() of such a command line; keys of a configuration file are treated likewise. Throws
// CLI::ParseError. Returns what is without effect.
std::vector<std::string> parse_forgivingly(CLI::App& app, int argc, const char* const* argv);

}  // namespace quire
