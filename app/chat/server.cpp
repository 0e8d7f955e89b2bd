#include "app/chat/server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/error.h"
#include "net/http_client.h"

namespace quire {

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kLookAgain{50};
constexpr milliseconds kGoodbye{5000};
constexpr std::streamoff kMaxLogShown = 4000;  // bytes, the last ones

std::string make_folder() {
  std::string pattern = (fs::temp_directory_path() / "quire-chat-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw Failure(ErrorCode::unavailable, pattern + ": " + std::strerror(errno));
  }
  return pattern;
}

// What a signal handler may touch: the files of the folder, for a terminal that closes.
struct Leftovers {
  std::array<char, 256> socket, log, folder;
};
Leftovers leftovers;

void end_without_leftovers(int number) {
  ::unlink(leftovers.socket.data());
  ::unlink(leftovers.log.data());
  ::rmdir(leftovers.folder.data());
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void clean_up_when_ended(const std::string& folder, const std::string& socket,
                         const std::string& log) {
  const auto keep = [](std::array<char, 256>& to, const std::string& path) {
    if (path.size() < to.size()) std::memcpy(to.data(), path.c_str(), path.size() + 1);
  };
  keep(leftovers.folder, folder);
  keep(leftovers.socket, socket);
  keep(leftovers.log, log);
  for (const int number : {SIGHUP, SIGTERM}) ::signal(number, end_without_leftovers);
}

// Of a reply of /health/ready.
std::string reason_of(const std::string& body) {
  boost::system::error_code wrong;
  const boost::json::value value = boost::json::parse(body, wrong);
  const auto* const object = wrong ? nullptr : value.if_object();
  const auto* const reason = object == nullptr ? nullptr : object->if_contains("reason");
  return reason != nullptr && reason->is_string() ? std::string(reason->get_string()) : "";
}

}  // namespace

struct ChatServer::Process {
  std::string folder = make_folder();
  std::string socket = folder + "/socket";
  std::string log = folder + "/log";
  pid_t pid = -1;

  Process() { clean_up_when_ended(folder, socket, log); }
  ~Process() {
    stop();
    for (const int number : {SIGHUP, SIGTERM}) ::signal(number, SIG_DFL);
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }

  void start(const std::string& model, const std::vector<std::string>& flags) {
    std::vector<std::string> words = {"quire", "serve", model, "--uds", socket, "--log-level", "warn"};
    words.insert(words.end(), flags.begin(), flags.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t parent = ::getpid();
    pid = ::fork();
    if (pid < 0) throw Failure(ErrorCode::unavailable, std::string("fork: ") + std::strerror(errno));
    if (pid > 0) return;
    for (const int number : {SIGHUP, SIGTERM}) ::signal(number, SIG_DFL);
    ::setpgid(0, 0);  // Ctrl-C is for the conversation
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const int in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::dup2(in, STDIN_FILENO);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    ::execv("/proc/self/exe", argv.data());
    ::_exit(127);
  }

  bool has_ended() {
    int status = 0;
    if (pid > 0 && ::waitpid(pid, &status, WNOHANG) == pid) pid = -1;
    return pid < 0;
  }

  void stop() {
    if (has_ended()) return;
    ::kill(pid, SIGTERM);
    for (milliseconds waited{0}; waited < kGoodbye; waited += kLookAgain) {
      if (has_ended()) return;
      std::this_thread::sleep_for(kLookAgain);
    }
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = -1;
  }

  std::string last_words() const {
    std::ifstream file(log, std::ios::binary | std::ios::ate);
    const std::streamoff size = file.tellg();
    if (size < 0) return {};
    std::string words(static_cast<std::size_t>(std::min(size, kMaxLogShown)), '\0');
    file.seekg(size - std::ssize(words));
    file.read(words.data(), std::ssize(words));
    words.resize(static_cast<std::size_t>(file.gcount()));
    while (words.ends_with('\n')) words.pop_back();
    return words;
  }
};

ChatServer::ChatServer(const std::string& model, const std::vector<std::string>& flags,
                       const std::function<void(const std::string&)>& progress,
                       const std::function<bool()>& stopped)
    : process_(std::make_unique<Process>()) {
  process_->start(model, flags);
  net::Patience patience;
  patience.stopped = stopped;
  net::Client client(patience);
  const net::Request request{.method = "GET", .url = url().with_path("/health/ready"), .headers = {}, .body = {}};
  while (true) {
    if (stopped()) throw Failure(ErrorCode::cancelled, "stopped");
    if (process_->has_ended()) {
      throw Failure(ErrorCode::unavailable, "the server did not start:\n" + process_->last_words());
    }
    try {
      const net::Response reply = client.send(request);
      if (reply.status == 200) return;
      progress(reason_of(reply.body));
    } catch (const Failure& failure) {  // it does not listen yet
      if (failure.error().code == ErrorCode::cancelled) throw;
    }
    std::this_thread::sleep_for(kLookAgain);
  }
}

ChatServer::~ChatServer() = default;

net::Url ChatServer::url() const { return net::Url::parse("unix:" + process_->socket); }

}  // namespace quire
