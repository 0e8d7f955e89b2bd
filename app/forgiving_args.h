#pragma once
// Command lines as people bring them from elsewhere: underscores for dashes, flags of vLLM's that
// change nothing here, slips of the finger.

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace quire {

// Throws CLI::ValidationError for what a flag of vLLM's asks for and is not offered.
struct ForgivingArgs {
  ForgivingArgs(int argc, const char* const* argv);
  ForgivingArgs(const ForgivingArgs&) = delete;
  ForgivingArgs& operator=(const ForgivingArgs&) = delete;

  std::vector<const char*> argv;            // to parse; points into texts_
  std::vector<std::string> without_effect;  // taken out: there is nothing here to switch on or off

 private:
  std::vector<std::string> texts_;
};

// What to do instead of `flag`, ". Did you mean --x?" of the flag nearest to `flag`, or `otherwise`.
std::string flag_hint(const CLI::App& app, const std::string& flag, const char* otherwise);

// app.parse() of such a command line. What the command does not know is refused, the first by name
// and with the flag that was probably meant; keys of a configuration file likewise. Throws
// CLI::ParseError. Returns what is without effect.
std::vector<std::string> parse_forgivingly(CLI::App& app, int argc, const char* const* argv);

}  // namespace quire
