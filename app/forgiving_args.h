#pragma once
// Command lines as people bring them from elsewhere: underscores for dashes, flags of vLLM's that
// change nothing here, slips of the finger.

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace quire {

struct ForgivingArgs {
  ForgivingArgs(int argc, const char* const* argv);
  ForgivingArgs(const ForgivingArgs&) = delete;
  ForgivingArgs& operator=(const ForgivingArgs&) = delete;

  std::vector<const char*> argv;            // to parse; points into texts_
  std::vector<std::string> without_effect;  // taken out: there is nothing here to switch on or off

 private:
  std::vector<std::string> texts_;
};

// After parsing with allow_extras(): refuses what the command does not know, the first by name and
// with the flag that was probably meant. Throws CLI::ValidationError.
void refuse_unknown(const CLI::App& app);

}  // namespace quire
