#pragma once
// A subcommand's main() as a user sees it: arguments and standard input in, exit code and output
// out.

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace quire::test {

struct MainOutcome {
  int exit_code;
  std::string out, err;
};

class Redirected {
 public:
  Redirected(std::ios& stream, std::streambuf* to) : stream_(stream), before_(stream.rdbuf(to)) {}
  ~Redirected() { stream_.rdbuf(before_); }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;

 private:
  std::ios& stream_;
  std::streambuf* before_;
};

inline MainOutcome run_main(int (*main)(int, const char* const*),
                            std::vector<const char*> arguments, const std::string& input) {
  arguments.insert(arguments.begin(), "quire");
  std::istringstream in(input);
  std::ostringstream out, err;
  const Redirected a(std::cin, in.rdbuf()), b(std::cout, out.rdbuf()), c(std::cerr, err.rdbuf());
  std::cin.clear();
  const int code = main(static_cast<int>(arguments.size()), arguments.data());
  return {code, out.str(), err.str()};
}

}  // namespace quire::test
