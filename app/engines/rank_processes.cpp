#include "app/engines/rank_processes.h"

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
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "app/engines/backends.h"
#include "app/engines/child_process.h"
#include "base/error.h"
#include "base/log.h"
#include "cpu/cpu_backend.h"
#include "cpu/shared_collectives.h"
#include "cuda/cuda_backend.h"
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

// All that ranks share: the line, what CPUs sum up in, who lives, and who meets on GPUs.
class Shared {
 public:
  explicit Shared(int size) : size_(size), memory_(SharedMemory::create("quire-ranks", bytes())) {}
  Shared(int descriptor, int size) : size_(size), memory_(SharedMemory::open(descriptor)) {}

  bool fits() const { return memory_.bytes() == bytes(); }
  int descriptor() const { return memory_.descriptor(); }
  std::byte* line() const { return memory_.data(); }
  std::byte* sums() const { return line() + RankLine::bytes(size_); }
  Pulse* pulses() const {
    return reinterpret_cast<Pulse*>(sums() + shared_collectives_bytes(size_));
  }
  CudaRanksId& meeting() const { return *reinterpret_cast<CudaRanksId*>(pulses() + size_); }

 private:
  std::size_t bytes() const {
    return RankLine::bytes(size_) + shared_collectives_bytes(size_) +
           sizeof(Pulse) * static_cast<std::size_t>(size_) + sizeof(CudaRanksId);
  }

  const int size_;
  const SharedMemory memory_;
};

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

std::unique_ptr<Collectives> collectives_of(const Shared& shared, RankLine& line, int rank,
                                            const RankOptions& options, Device& device) {
  if (options.kind == DeviceKind::cuda)
    return make_cuda_collectives(device,
                                 {.id = shared.meeting(),
                                  .rank = rank,
                                  .size = options.size,
                                  .device = options.first_device + rank},
                                 [&fate = line.fate()] { fate.check(); });
  device.ledger().add(MemoryPurpose::kernels, MemoryKind::device, kSharedCollectivesBytes);
  return make_shared_collectives(shared.sums(), line.fate(), rank, options.size);
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
  RankProcesses(const RankOptions& options, Device& device)
      : options_(options), shared_(options.size), line_(shared_.line(), 0, options.size) {
    if (options_.kind == DeviceKind::cuda) shared_.meeting() = make_cuda_ranks_id();
    std::promise<void> started;
    auto has_started = started.get_future();
    thread_ = std::thread([this, &started] { run(started); });
    try {
      has_started.get();
      auto collectives = collectives_of(shared_, line_, 0, options_, device);
      const std::lock_guard lock(mutex_);
      collectives_ = std::move(collectives);
      line_.fate().check();
    } catch (...) {
      stop();
      throw;
    }
  }

  ~RankProcesses() override { stop(); }

  Collectives& collectives() override { return *collectives_; }
  RankLine& line() override { return line_; }

  std::vector<RankStats> stats() const override {
    std::vector<RankStats> stats;
    for (int rank = 0; rank < options_.size; ++rank)
      stats.push_back({.memory_bytes = line_.memory_of(rank),
                       .waited_seconds = seconds_waited(shared_.sums(), rank)});
    return stats;
  }

  void on_end(std::function<void()> wake) override {
    const std::lock_guard lock(mutex_);
    on_end_ = std::move(wake);
    if (line_.fate().has_failed()) on_end_();
  }

 private:
  void stop() {
    stopping_ = true;
    wake_up_.wake();
    thread_.join();
  }

  // Children die with the thread that forks: it stays until the end.
  void run(std::promise<void>& started) {
    std::vector<std::unique_ptr<ChildProcess>> ranks;
    use_cores_of_part(0, 1);  // whatever an engine before it has bound its starter to
    try {
      for (int rank = 1; rank < options_.size; ++rank) ranks.push_back(start(rank));
    } catch (...) {
      return started.set_exception(std::current_exception());
    }
    started.set_value();
    watch(ranks);
  }

  std::unique_ptr<ChildProcess> start(int rank) const {
    auto process = std::make_unique<ChildProcess>(
        std::vector<std::string>{"quire", "rank", std::to_string(shared_.descriptor()),
                                 std::to_string(rank), std::to_string(options_.size),
                                 options_.kind == DeviceKind::cuda ? "cuda" : "cpu",
                                 std::to_string(options_.first_device)},
        shared_.descriptor());
    log::info("engine.rank_started",
              {{"rank", rank}, {"of", options_.size}, {"pid", process->pid()}});
    return process;
  }

  void watch(const std::vector<std::unique_ptr<ChildProcess>>& ranks) {
    std::vector<pollfd> polled{{wake_up_.descriptor(), POLLIN, 0}};
    std::vector<Watch> watches;
    for (const auto& rank : ranks) {
      polled.push_back({rank->ended_descriptor(), POLLIN, 0});
      watches.emplace_back(shared_.pulses()[watches.size() + 1]);
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
    line_.fate().fail("rank " + std::to_string(rank) + " of " + std::to_string(options_.size) +
                      " " + why + ": the model's other parts are of no use without it");
    const std::lock_guard lock(mutex_);
    if (collectives_ != nullptr) collectives_->abort();
    if (on_end_) on_end_();
  }

  const RankOptions options_;
  const Shared shared_;
  RankLine line_;
  std::unique_ptr<Collectives> collectives_;
  const WakeUp wake_up_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::function<void()> on_end_;
  std::thread thread_;  // last: it uses what is above
};

// Rank 0 says why it ended.
int serve_rank(const Shared& shared, RankLine& line, int rank, const RankOptions& options) {
  try {
    auto device = make_device(options.kind, options.first_device + rank);
    auto collectives = collectives_of(shared, line, rank, options, *device);
    follow(line, std::move(collectives), [&](const EngineConfig& config) {
      return make_rank_backend(config, std::move(device), options.first_device + rank);
    });
  } catch (const std::exception& e) {
    line.fate().fail("rank " + std::to_string(rank) + " of " + std::to_string(options.size) + ": " +
                     e.what());
    return 1;
  }
}

}  // namespace

std::unique_ptr<RankGroup> start_ranks(const RankOptions& options, Device& device) {
  return std::make_unique<RankProcesses>(options, device);
}

int rank_main(int argc, const char* const* argv) {
  constexpr int kWords = 6;
  if (argc != kWords) return 2;
  const int descriptor = std::atoi(argv[1]), rank = std::atoi(argv[2]);
  const RankOptions options{
      .size = std::atoi(argv[3]),
      .kind = std::string_view(argv[4]) == "cuda" ? DeviceKind::cuda : DeviceKind::cpu,
      .first_device = std::atoi(argv[5])};
  log::configure(log::Format::text, log::Level::error);
  // A terminal's Ctrl-C, and service managers that signal every process: the parent's to answer.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  try {
    const Shared shared(descriptor, options.size);
    if (rank < 1 || rank >= options.size || !shared.fits()) return 2;
    RankLine line(shared.line(), rank, options.size);
    const std::jthread pulse(beat, std::ref(shared.pulses()[rank]));
    return serve_rank(shared, line, rank, options);
  } catch (const std::exception&) {
    return 1;
  }
}

}  // namespace quire
