#include "app/rank_processes.h"

#include <poll.h>

#include <atomic>
#include <cassert>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/backends.h"
#include "app/child_process.h"
#include "base/error.h"
#include "base/log.h"
#include "cpu/shared_collectives.h"
#include "engine/core/rank_core.h"
#include "engine/wire/wake_up.h"

namespace quire {
namespace {

constexpr std::chrono::milliseconds kBeat{250}, kGlance{500};
constexpr int kSilentGlances = 20;  // ten seconds

// Raised by a thread of the rank's that does nothing else, in memory that begins as zeros.
struct alignas(64) Pulse {
  std::atomic<std::uint32_t> beats;
};

std::size_t shared_bytes(int size) {
  assert(shared_collectives_bytes(1) == kSharedBytesOfRank);
  return RankLine::bytes(size) + shared_collectives_bytes(size) +
         sizeof(Pulse) * static_cast<std::size_t>(size);
}

Pulse* pulses_of(const SharedMemory& memory, int size) {
  return reinterpret_cast<Pulse*>(memory.data() + RankLine::bytes(size) +
                                  shared_collectives_bytes(size));
}

// Glances that found it as it was, one after the other. Counted and not timed: if this process has
// been stopped as well, that is one glance.
class Watch {
 public:
  explicit Watch(const Pulse& pulse) : pulse_(pulse) {}
  // True once: too many.
  bool has_fallen_silent() {
    const std::uint32_t beats = pulse_.beats.load(std::memory_order_relaxed);
    silent_ = beats == seen_ ? silent_ + 1 : 0;
    seen_ = beats;
    return silent_ == kSilentGlances;
  }

 private:
  const Pulse& pulse_;
  std::uint32_t seen_ = 0;
  int silent_ = 0;
};

std::unique_ptr<Collectives> collectives_of(const SharedMemory& memory, RankLine& line, int rank,
                                            int size) {
  return make_shared_collectives(memory.data() + RankLine::bytes(size), line.fate(), rank, size);
}

// Until it is asked to stop.
void beat(const std::stop_token& stop, Pulse& pulse) {
  while (!stop.stop_requested()) {
    pulse.beats.fetch_add(1, std::memory_order_relaxed);
    std::this_thread::sleep_for(kBeat);
  }
}

class RankProcesses final : public RankGroup {
 public:
  explicit RankProcesses(int size)
      : size_(size),
        memory_(SharedMemory::create("quire-ranks",
                                     shared_bytes(size))),
        line_(memory_.data(), 0, size),
        collectives_(collectives_of(memory_, line_, 0, size)) {
    std::promise<void> started;
    auto has_started = started.get_future();
    thread_ = std::thread([this, &started] { run(started); });
    try {
      has_started.get();
    } catch (...) {
      thread_.join();
      throw;
    }
  }

  ~RankProcesses() override {
    stopping_ = true;
    wake_up_.wake();
    thread_.join();
  }

  Collectives& collectives() override { return *collectives_; }
  RankLine& line() override { return line_; }

  void on_end(std::function<void()> wake) override {
    const std::lock_guard lock(mutex_);
    on_end_ = std::move(wake);
    if (line_.fate().has_failed()) on_end_();
  }

 private:
  // Children die with the thread that forks: it stays until the end.
  void run(std::promise<void>& started) {
    std::vector<std::unique_ptr<ChildProcess>> ranks;
    try {
      for (int rank = 1; rank < size_; ++rank) ranks.push_back(start(rank));
    } catch (...) {
      return started.set_exception(std::current_exception());
    }
    started.set_value();
    watch(ranks);
  }

  std::unique_ptr<ChildProcess> start(int rank) const {
    auto process = std::make_unique<ChildProcess>(
        std::vector<std::string>{"quire", "rank", std::to_string(memory_.descriptor()),
                                 std::to_string(rank), std::to_string(size_)},
        memory_.descriptor());
    log::info("engine.rank_started", {{"rank", rank}, {"of", size_}, {"pid", process->pid()}});
    return process;
  }

  void watch(const std::vector<std::unique_ptr<ChildProcess>>& ranks) {
    std::vector<pollfd> polled{{wake_up_.descriptor(), POLLIN, 0}};
    std::vector<Watch> watches;
    for (const auto& rank : ranks) {
      polled.push_back({rank->ended_descriptor(), POLLIN, 0});
      watches.emplace_back(pulses_of(memory_, size_)[watches.size() + 1]);
    }
    while (true) {
      const int ready = ::poll(polled.data(), polled.size(), static_cast<int>(kGlance.count()));
      if (stopping_) return;
      for (std::size_t i = 0; ready == 0 && i < watches.size(); ++i) {
        if (watches[i].has_fallen_silent()) fell_silent(static_cast<int>(i) + 1);
      }
      for (std::size_t i = 1; i < polled.size(); ++i) {
        if (polled[i].revents == 0) continue;
        polled[i].fd = -1;
        ended(static_cast<int>(i), ranks[i - 1]->wait());
      }
    }
  }

  // Its own words, if it had any, came first.
  void ended(int rank, const std::string& how) {
    log::error("engine.rank_ended", {{"rank", rank}, {"ended_with", how}});
    lost(rank, "ended with " + how);
  }

  void fell_silent(int rank) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(kSilentGlances * kGlance);
    log::error("engine.rank_silent", {{"rank", rank}, {"seconds", seconds.count()}});
    lost(rank, "has given no sign of life for " + std::to_string(seconds.count()) +
                   " s, as if its process were stopped");
  }

  void lost(int rank, const std::string& why) {
    line_.fate().fail("rank " + std::to_string(rank) + " of " + std::to_string(size_) + " " + why +
                      ": the model's other parts are of no use without it");
    const std::lock_guard lock(mutex_);
    if (on_end_) on_end_();
  }

  const int size_;
  const SharedMemory memory_;
  RankLine line_;
  const std::unique_ptr<Collectives> collectives_;
  const WakeUp wake_up_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::function<void()> on_end_;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace

std::unique_ptr<RankGroup> start_ranks(int size) { return std::make_unique<RankProcesses>(size); }

int rank_main(int argc, const char* const* argv) {
  constexpr int kWords = 4;
  if (argc != kWords) return 2;
  const int descriptor = std::atoi(argv[1]), rank = std::atoi(argv[2]), size = std::atoi(argv[3]);
  log::configure(log::Format::text, log::Level::error);
  // A terminal's Ctrl-C, and service managers that signal every process: the parent's to answer.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  try {
    const SharedMemory memory = SharedMemory::open(descriptor);
    if (rank < 1 || rank >= size ||
        memory.bytes() != shared_bytes(size))
      return 2;
    RankLine line(memory.data(), rank, size);
    const auto collectives = collectives_of(memory, line, rank, size);
    const std::jthread pulse(beat, std::ref(pulses_of(memory, size)[rank]));
    follow(line, *collectives, make_rank_backend);
  } catch (const std::exception&) {
    return 1;  // rank 0 says why
  }
}

}  // namespace quire
