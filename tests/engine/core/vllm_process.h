#pragma once
// vLLM's own connector classes in a process of their own, asked line by line. QUIRE_NIXL_PYTHON is
// a Python that has NIXL, QUIRE_MOONCAKE_PYTHON one with Mooncake, QUIRE_VLLM_WHEEL a folder with
// vLLM's.

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace quire::test {

struct VllmConnector {
  const char* script;
  const char* python;  // the variable that names it
};
inline constexpr VllmConnector kNixlConnector{"tests/e2e/vllm_connector.py", "QUIRE_NIXL_PYTHON"};
inline constexpr VllmConnector kMooncakeConnector{"tests/e2e/vllm_mooncake.py",
                                                  "QUIRE_MOONCAKE_PYTHON"};

class VllmProcess {
 public:
  static bool is_here(const VllmConnector& connector = kNixlConnector) {
    return std::getenv(connector.python) != nullptr && std::getenv("QUIRE_VLLM_WHEEL") != nullptr;
  }

  VllmProcess(const std::string& shape, const std::string& extra = "{}",
              const VllmConnector& connector = kNixlConnector) {
    std::array<int, 2> in{}, out{};
    REQUIRE(::pipe(in.data()) == 0);
    REQUIRE(::pipe(out.data()) == 0);
    child_ = ::fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) {
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      for (const int fd : {in[0], in[1], out[0], out[1]}) ::close(fd);
      // A virtual environment is found by the name that Python is called by.
      const char* const python = std::getenv(connector.python);
      ::execl(python, python, connector.script, shape.c_str(), extra.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    to_ = ::fdopen(in[1], "w");
    from_ = ::fdopen(out[0], "r");
    while (read_line().find("\"ready\"") == std::string::npos) {
    }
  }
  VllmProcess(const VllmProcess&) = delete;
  VllmProcess& operator=(const VllmProcess&) = delete;
  ~VllmProcess() { end(); }

  void end() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = 0;
    std::fclose(to_);
    std::fclose(from_);
  }

  // One JSON object in, one out.
  std::string ask(const std::string& order) {
    std::fprintf(to_, "%s\n", order.c_str());
    std::fflush(to_);
    return read_line();
  }

 private:
  // Other lines are the library's.
  std::string read_line() {
    std::string line;
    while (true) {
      const int c = std::fgetc(from_);
      REQUIRE(c != EOF);
      if (c != '\n') {
        line += static_cast<char>(c);
      } else if (line.starts_with("{")) {
        return line;
      } else {
        line.clear();
      }
    }
  }

  pid_t child_ = 0;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
};

}  // namespace quire::test
