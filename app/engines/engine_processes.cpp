#include "app/engines/engine_processes.h"

#include <fcntl.h>
#include <openssl/rand.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "app/engines/child_process.h"
#include "app/engines/process_end.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/wire/wake_up.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{200};
constexpr milliseconds kLongestPause{30'000};
constexpr milliseconds kLastWords{300};  // what an engine that fails says arrives before the news
constexpr std::chrono::minutes kWindow{10};
constexpr milliseconds kToEnd{5000};

// Into which nobody else may look; gone with the server. One whose server was killed is removed by
// the next server of the same user: its lock is free. Below $XDG_RUNTIME_DIR, unless that is so long
// that no socket can have a name there: then below /tmp.
class PrivateFolder {
 public:
  PrivateFolder() {
    const char* const given = std::getenv("XDG_RUNTIME_DIR");
    std::error_code ignored;
    const bool fits = given != nullptr && fs::is_directory(given, ignored) &&
                      parse_socket_address(std::string("unix:") + given + kLongest).has_value();
    const std::string base = fits ? given : "/tmp";
    remove_left(base);
    path_ = base + kBegin + "XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr)
      throw Failure(ErrorCode::internal, "no folder for engines' sockets below " + base);
    // Under its name only once it is held.
    const std::string early = path_ + kLock + ".new";
    lock_.reset(::open(early.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (lock_ && ::flock(lock_.get(), LOCK_EX) == 0)
      ::rename(early.c_str(), (path_ + kLock).c_str());
  }
  ~PrivateFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  static constexpr const char* kBegin = "/quire-";
  static constexpr const char* kLongest = "/quire-XXXXXX/65535";  // of a socket in it
  static constexpr const char* kLock = "/engines.lock";

  static void remove_left(const std::string& base) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(base, error)) {
      const std::string path = entry.path().string();
      struct stat of {};
      if (!path.starts_with(base + kBegin) || ::lstat(path.c_str(), &of) != 0 ||
          !S_ISDIR(of.st_mode) || of.st_uid != ::geteuid())
        continue;
      const Descriptor lock(::open((path + kLock).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
      if (lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) remove_own(path);
    }
  }

  // Of sockets and the lock alone: one of the same name that holds anything else is somebody's.
  static void remove_own(const std::string& path) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(path, error))
      if (!entry.is_socket(error) && entry.path() != path + kLock) return;
    fs::remove_all(path, error);
  }

  std::string path_;
  Descriptor lock_;
};

std::string new_secret() {
  std::array<unsigned char, 32> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
    throw Failure(ErrorCode::internal, "the system has no random bytes");
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

// A file without a name, which children read by its number.
Descriptor secret_file(const std::string& secret) {
  Descriptor file(::memfd_create("quire-engine-secret", MFD_CLOEXEC));
  if (!file ||
      ::write(file.get(), secret.data(), secret.size()) != static_cast<ssize_t>(secret.size()))
    throw Failure(ErrorCode::internal, "the engines' secret cannot be written to memory");
  return file;
}

struct Slot {
  int rank = 0;
  std::string address;
  std::shared_ptr<ProcessNews> news = std::make_shared<ProcessNews>();
  std::unique_ptr<ChildProcess> process = {};
  std::optional<Clock::time_point> next_start = {};
  std::deque<Clock::time_point> deaths = {};  // of the last ten minutes
  std::string silence = {};  // why it was killed, if it was
  bool given_up = false;
};

}  // namespace

class EngineProcesses::Impl {
 public:
  explicit Impl(EngineProcessOptions options)
      : options_(std::move(options)), secret_(new_secret()), secret_file_(secret_file(secret_)) {
    for (int rank = 0; rank < options_.count; ++rank) {
      slots_.push_back(
          {.rank = rank, .address = "unix:" + folder_.path() + "/" + std::to_string(rank)});
      slots_.back().news->on_silence([this] { wake_up_.wake(); });
    }
    thread_ = std::thread([this] { run(); });
  }

  ~Impl() {
    for (const Slot& slot : slots_) slot.news->on_silence(nullptr);
    stopping_ = true;
    wake_up_.wake();
    thread_.join();
  }

  std::vector<std::unique_ptr<ClientEnd>> take_ends() {
    std::vector<std::unique_ptr<ClientEnd>> ends;
    for (const Slot& slot : slots_) {
      SocketOptions socket = options_.socket;
      socket.secret = secret_;
      socket.on_silence = [news = slot.news] { news->fell_silent(); };
      ends.push_back(make_process_end(
          make_socket_client_end(*parse_socket_address(slot.address), std::move(socket)),
          slot.news));
    }
    return ends;
  }

 private:
  // Children die with the thread that forks, so that all of them begin here.
  void run() {
    const auto now = Clock::now();
    for (Slot& slot : slots_) slot.next_start = now;
    while (!stopping_) {
      for (Slot& slot : slots_) {
        if (slot.next_start && *slot.next_start <= Clock::now()) start(slot);
      }
      wait();
    }
    end_all();
  }

  void start(Slot& slot) {
    slot.next_start.reset();
    slot.silence.clear();
    slot.news->take_silence();  // of its former life
    std::vector<std::string> arguments{"quire", "engine"};
    arguments.insert(arguments.end(), options_.flags.begin(), options_.flags.end());
    const auto rank = std::to_string(slot.rank);
    for (const std::string& word :
         {std::string("--listen"), slot.address, std::string("--rank"), rank,
          std::string("--device-index"), std::to_string(slot.rank * options_.devices),
          std::string("--engine-secret-file"),
          "/proc/self/fd/" + std::to_string(secret_file_.get())}) {
      arguments.push_back(word);
    }
    try {
      slot.process = std::make_unique<ChildProcess>(arguments, secret_file_.get());
      log::info("engine.process_started", {{"engine", slot.rank}, {"pid", slot.process->pid()}});
    } catch (const Failure& failure) {
      died(slot, failure.what());
    }
  }

  void wait() {
    std::vector<pollfd> polled{{wake_up_.descriptor(), POLLIN, 0}};
    std::vector<Slot*> watched;
    auto until = Clock::now() + std::chrono::hours(1);
    for (Slot& slot : slots_) {
      if (slot.next_start) until = std::min(until, *slot.next_start);
      if (slot.process == nullptr) continue;
      polled.push_back({slot.process->ended_descriptor(), POLLIN, 0});
      watched.push_back(&slot);
    }
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    ::poll(polled.data(), polled.size(), static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (polled[0].revents != 0) wake_up_.reset();
    for (Slot* slot : watched) end_silent(*slot);
    for (std::size_t i = 0; i < watched.size(); ++i) {
      if (polled[i + 1].revents == 0) continue;
      std::string how = watched[i]->process->wait();
      watched[i]->process.reset();
      if (!watched[i]->silence.empty()) how += ": " + watched[i]->silence;
      if (how.starts_with("exit")) std::this_thread::sleep_for(kLastWords);
      died(*watched[i], how);
    }
  }

  // One that hangs is replaced like one that has died. Of one that has yet to be ready the first
  // time the server says itself how long it waits.
  void end_silent(Slot& slot) {
    if (!slot.news->take_silence() || !slot.news->was_ready()) return;
    slot.silence =
        "it said nothing for " + std::to_string(options_.socket.silence.count()) + " ms";
    log::warn("engine.process_killed", {{"engine", slot.rank}, {"because", slot.silence}});
    slot.process->signal(SIGKILL);
  }

  // One that has never been ready would fail again; its words go to who starts the server.
  void died(Slot& slot, const std::string& how) {
    const auto now = Clock::now();
    slot.deaths.push_back(now);
    while (slot.deaths.front() < now - kWindow) slot.deaths.pop_front();
    const auto count = static_cast<int>(slot.deaths.size());
    slot.given_up = !slot.news->was_ready() || count > options_.max_restarts;
    const auto pause = std::min<milliseconds>(
        kFirstPause * (std::int64_t{1} << std::min(count - 1, 10)), kLongestPause);
    if (slot.given_up) {
      log::error("engine.process_given_up",
                 {{"engine", slot.rank}, {"ended_with", how}, {"deaths", count}});
    } else {
      log::warn("engine.process_ended",
                {{"engine", slot.rank},
                 {"ended_with", how},
                 {"starts_again_in_seconds", static_cast<double>(pause.count()) / 1000}});
      slot.next_start = now + pause;
    }
    slot.news->ended(how);
    if (!std::ranges::all_of(slots_, &Slot::given_up)) return;
    for (const Slot& one : slots_) one.news->gone_for_good();
  }

  void end_all() {
    const auto deadline = Clock::now() + kToEnd;
    for (const Slot& slot : slots_) {
      if (slot.process != nullptr) slot.process->signal(SIGTERM);
    }
    for (Slot& slot : slots_) {
      if (slot.process == nullptr) continue;
      pollfd ended{slot.process->ended_descriptor(), POLLIN, 0};
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
      const int timeout = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
      if (::poll(&ended, 1, timeout) == 0)
        log::warn("engine.process_killed", {{"engine", slot.rank}});
      slot.process.reset();
    }
  }

  const EngineProcessOptions options_;
  const PrivateFolder folder_;
  const std::string secret_;
  const Descriptor secret_file_;
  const WakeUp wake_up_;
  std::atomic<bool> stopping_{false};
  std::vector<Slot> slots_;  // the thread's, but for address and news
  std::thread thread_;       // last: it uses what is above
};

EngineProcesses::EngineProcesses(EngineProcessOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
EngineProcesses::~EngineProcesses() = default;

std::vector<std::unique_ptr<ClientEnd>> EngineProcesses::take_ends() { return impl_->take_ends(); }

}  // namespace quire
