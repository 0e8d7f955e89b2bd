#pragma once
// Command lines as people bring them from elsewhere: underscores for dashes, flags of vLLM's that
// change nothing here, its short and dotted names, slips of the finger.

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace quire {

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

// app.parse() of such a command line; keys of a configuration file are treated likewise. Throws
// CLI::ParseError. Returns what is without effect.
std::vector<std::string> parse_forgivingly(CLI::App& app, int argc, const char* const* argv);

}  // namespace quire
