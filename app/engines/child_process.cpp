#include "app/engines/child_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace quire {
namespace {

constexpr int kExecFailed = 127;

// The server's connections: a client must not wait for a child to close them too.
void close_at_exec() {
  constexpr unsigned kFirst = 3;
  constexpr int kMostWithoutTheCall = 65'536;
  if (::close_range(kFirst, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
  for (int fd = kFirst; fd < kMostWithoutTheCall; ++fd) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

// In the child, between fork and exec: async-signal-safe calls only. A process group of its own
// keeps a terminal's Ctrl-C from it, which the parent answers by finishing what runs.
[[noreturn]] void become(char* const* arguments, char* const* environment, int alive, int inherited,
                         pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kExecFailed);  // it ended before the line above
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGXFSZ, SIG_DFL);
  close_at_exec();
  ::fcntl(alive, F_SETFD, 0);
  ::fcntl(inherited, F_SETFD, 0);
  ::execve("/proc/self/exe", arguments, environment);
  ::_exit(kExecFailed);
}

// A child serves nobody by itself: keys of clients and of the hub are not its business.
bool is_secret(std::string_view variable) {
  const std::string_view name = variable.substr(0, variable.find('='));
  constexpr std::array<std::string_view, 4> kEnds{"_KEY", "_TOKEN", "_SECRET", "_PASSWORD"};
  return std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); });
}

Failure failure(const char* what) {
  return Failure(ErrorCode::internal, std::string(what) + ": " + std::strerror(errno));
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, int inherited) {
  std::vector<char*> pointers;
  for (const std::string& one : arguments) pointers.push_back(const_cast<char*>(one.c_str()));
  pointers.push_back(nullptr);
  std::vector<char*> variables;
  for (char** one = environ; *one != nullptr; ++one)
    if (!is_secret(*one)) variables.push_back(*one);
  variables.push_back(nullptr);
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) throw failure("pipe");
  alive_.reset(pipe[0]);
  const Descriptor held(pipe[1]);  // by the child, until it ends
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw failure("fork");
  if (pid_ == 0) become(pointers.data(), variables.data(), held.get(), inherited, parent);
}

ChildProcess::~ChildProcess() {
  signal(SIGKILL);
  wait();
}

void ChildProcess::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

std::string ChildProcess::wait() {
  if (pid_ <= 0) return "";
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace quire
