// Which queue's work runs next, and when.

#include "queues.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core.h"
#include "memory.h"

namespace emulation {
namespace {

std::vector<std::shared_ptr<Queue>> queues;  // with work, or of a stream
double microseconds = 0;

enum class Mode { late, now, random };
Mode mode() {
  static const Mode value = [] {
    const char* text = std::getenv("QUIRE_EMULATION_STREAMS");
    const std::string_view name = text != nullptr ? text : "late";
    return name == "now" ? Mode::now : name == "random" ? Mode::random : Mode::late;
  }();
  return value;
}
std::uint64_t next_choice() {  // xorshift64
  static std::uint64_t x = config().seed * 0x9e3779b97f4a7c15u | 1;
  x ^= x << 13;
  x ^= x >> 7;
  return x ^= x << 17;
}

// Kernels behind the first that may begin before it has ended do so before it has begun: all that
// they read and write before they wait is then visibly too early. CUDA lets so many begin as have
// room, if each gives its place away before it waits itself. Of the kernels until `until` alone,
// as whoever wants these finishes them.
void begin_ahead(Queue& queue, std::uint64_t until) {
  constexpr std::size_t kMost = 16;
  for (std::size_t i = 1; i < std::min(kMost, queue.work.size()) && queue.done + i < until; ++i) {
    Queued& queued = queue.work[i];
    if (!queue.work[i - 1].work.is_kernel || !queued.work.begin) return;
    if (!queued.going_on) queued.going_on = queued.work.begin();
  }
}
void run_next(Queue& queue, std::uint64_t until) {
  queue.busy = true;
  try {
    begin_ahead(queue, until);
    const Queued next = std::move(queue.work.front());
    queue.work.pop_front();
    next.going_on ? next.going_on() : next.work.run();
  } catch (const std::exception& error) {
    fault(error.what());
  }
  queue.busy = false;
  ++queue.done;
}
void run_any() {
  std::vector<std::shared_ptr<Queue>> waiting;
  for (const auto& queue : queues) {
    if (!queue->busy && !queue->work.empty()) waiting.push_back(queue);
  }
  if (waiting.empty()) return;
  Queue& queue = *waiting[next_choice() % waiting.size()];
  const std::uint64_t until = queue.done + 1 + next_choice() % 4;
  do {
    run_next(queue, until);
  } while (!queue.work.empty() && queue.work.front().going_on);
}
// With the lock of runtime_mutex(); both never end, as a thread may still wait at exit.
std::condition_variable_any& has_work() {
  static auto* condition = new std::condition_variable_any;
  return *condition;
}

// Never gives up; the host gets its turn between two works.
void run_forever() {
  std::unique_lock lock(runtime_mutex());
  while (!is_lost()) {
    const auto next = std::ranges::find_if(
        queues, [](const auto& queue) { return !queue->busy && !queue->work.empty(); });
    if (next == queues.end()) {
      has_work().wait(lock);
      continue;
    }
    try {
      drain_queue(*next, (*next)->done + 1);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "emulated device: %s\n", error.what());
    }
    lock.unlock();
    lock.lock();
  }
}

}  // namespace

void run_by_itself() {
  static std::once_flag once;
  std::call_once(once, [] { std::thread(run_forever).detach(); });
}

void spend(double time) { microseconds += time; }
double time_spent() { return microseconds; }

std::shared_ptr<Queue> make_queue() { return queues.emplace_back(std::make_shared<Queue>()); }

void append(Queue& queue, Work work) {
  queue.work.push_back({std::move(work)});
  ++queue.queued;
  has_work().notify_one();
}

void make_progress(const std::shared_ptr<Queue>& queue) {
  if (mode() == Mode::now) drain_queue(queue, queue->queued);
  if (mode() != Mode::random || is_lost()) return;
  const DeviceAccess access;
  for (std::uint64_t steps = next_choice() % 3; steps > 0 && !is_lost(); --steps) run_any();
}

void drain_queue(const std::shared_ptr<Queue>& queue, std::uint64_t until) {
  const std::shared_ptr<Queue> alive = queue;
  const DeviceAccess access;
  while (!is_lost() && alive->done < until && !alive->work.empty()) {
    if (mode() == Mode::random) {
      run_any();
    } else {
      run_next(*alive, until);
    }
  }
}
void drain_all() {
  for (const auto& queue : std::vector(queues)) drain_queue(queue, queue->queued);
  std::erase_if(queues, [](const auto& queue) { return queue.use_count() == 1; });
}

}  // namespace emulation
