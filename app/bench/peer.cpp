#include "app/bench/peer.h"

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/json.h"

namespace quire {
namespace {

std::string output_of(const std::string& command) {
  std::FILE* const pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) throw Failure(ErrorCode::unavailable, "cannot run " + command);
  std::string text;
  std::array<char, 4096> part;
  for (std::size_t n; (n = std::fread(part.data(), 1, part.size(), pipe)) > 0;)
    text.append(part.data(), n);
  const int status = pclose(pipe);
  if (status != 0) {
    throw Failure(
        ErrorCode::unavailable,
        "\"" + command + "\" " +
            (WIFSIGNALED(status) ? "was ended by signal " + std::to_string(WTERMSIG(status))
                                 : "ended with exit code " + std::to_string(WEXITSTATUS(status))));
  }
  return text;
}

}  // namespace

std::optional<double> rate_in(std::string_view json, const BenchCase& what) {
  const std::size_t begin = json.find('[');  // some builds print lines of their own before
  if (begin == std::string_view::npos) return {};
  const JsonDocument document(std::string(json.substr(begin)), "--compare");
  for (const Json entry : document.root().items()) {
    const auto prompt = entry.find({"n_prompt"}), generate = entry.find({"n_gen"});
    const auto rate = entry.find({"avg_ts"});
    if (!prompt || !generate || !rate) continue;
    if (prompt->whole_number() != (what.generate > 0 ? 0 : what.prompt)) continue;
    if (generate->whole_number() == what.generate) return rate->as_number();
  }
  return {};
}

std::optional<double> peer_rate(const std::string& command, const BenchCase& what) {
  if (what.batch > 1 || what.depth > 0) return {};
  const std::string full = command + " -p " + std::to_string(what.generate > 0 ? 0 : what.prompt) +
                           " -n " + std::to_string(what.generate);
  const auto rate = rate_in(output_of(full), what);
  if (rate) return rate;
  throw Failure(ErrorCode::invalid_argument,
                "\"" + full + "\" printed no JSON list with n_prompt, n_gen and avg_ts; give it -o json");
}

}  // namespace quire
