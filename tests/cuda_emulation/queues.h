#pragma once
// What streams have queued. Queues are lazy: work runs only when something synchronises with it, as
// late as CUDA allows, so that host code which forgets to wait sees stale data.
// QUIRE_EMULATION_STREAMS=now runs work at once, =random lets every call bring all queues some
// steps forward, in any order that their events allow. Where devices wait for one another
// (nccl.cpp) work also runs by itself. To be called with the lock of runtime_mutex().

#include <cstdint>
#include <deque>
#include <memory>

#include "runtime.h"

namespace emulation {

struct Queued {
  Work work;
  std::function<void()> going_on = {};  // of a kernel that has begun
};
struct Queue {
  std::deque<Queued> work;
  std::uint64_t queued = 0, done = 0;
  bool busy = false;  // its first work runs, or waits for another queue's
};

std::shared_ptr<Queue> make_queue();
void append(Queue& queue, Work work);
void make_progress(
    const std::shared_ptr<Queue>& queue);  // what a call behind append() gives time for
void drain_queue(const std::shared_ptr<Queue>& queue,
                 std::uint64_t until);  // until so many are done
double time_spent();                    // microseconds that all work took so far

}  // namespace emulation
