// The life of a grid.

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>

#include "sanitizers.h"
#include "state.h"

namespace emulation {
namespace {

// Pooled and reachable forever: LeakSanitizer must see the fibers.
std::mutex pool_mutex;
std::vector<Scheduler*>& pool() {
  static auto* schedulers = new std::vector<Scheduler*>;
  return *schedulers;
}
Scheduler* take_scheduler() {
  const std::lock_guard lock(pool_mutex);
  if (pool().empty()) return new Scheduler;
  Scheduler* s = pool().back();
  pool().pop_back();
  return s;
}
void give_back(Scheduler* s) {
  const std::lock_guard lock(pool_mutex);
  pool().push_back(s);
}

// ASan wants the bounds of the stack that main's fiber is; reading them costs, so once per OS
// thread.
void set_main_stack(Fiber& main) {
  thread_local void* low = nullptr;
  thread_local std::size_t bytes = 0;
  if (low == nullptr) {
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &low, &bytes);
    pthread_attr_destroy(&attributes);
  }
  main.stack = static_cast<char*>(low);
  main.bytes = bytes;
}

// After an error: fibers that are still inside the kernel are made new.
void abandon(Scheduler& s) {
  if (kTsan) {
    for (const auto& block : s.blocks) {
      for (Thread& thread : block->threads) {
        __tsan_switch_to_fiber(thread.tsan, kNoSynchronisation);
        __tsan_release(&s.grid->ended);
      }
    }
    __tsan_switch_to_fiber(s.main_tsan, kNoSynchronisation);
  }
  for (const auto& block : s.blocks) {
    for (Thread& thread : block->threads) {
      if (thread.fiber == nullptr) continue;
      reset_fiber(*thread.fiber, fiber_entry);
      park(&thread, thread.fiber);
    }
  }
}

// Those that exist, until they have ended or, ahead, wait.
void run_threads(Scheduler& s) {
  if (Thread* first = pick()) {
    enter_thread(first);
  } else if (s.live != 0) {
    report_deadlock();
  }
  s.current = nullptr;
  for (const auto& block : s.blocks) {
    if (s.error.empty() && !s.ahead) s.error = left_behind(*block);
  }
  if (!s.error.empty()) abandon(s);
}

void release_blocks(Scheduler& s) {
  for (const auto& block : s.blocks) release_block(*block);
  s.live = 0;
  TsanIgnore ignore;
  s.blocks.clear();
}

void make_blocks(const Grid& grid, std::uint64_t begin, std::uint64_t end) {
  const dim3 size = grid.shape.grid;
  for (std::uint64_t i = begin; i < end; ++i) {
    const std::uint64_t k = config().order == Config::reverse ? grid.shape.blocks() - 1 - i : i;
    make_block({static_cast<unsigned>(k % size.x), static_cast<unsigned>(k / size.x % size.y),
                static_cast<unsigned>(k / size.x / size.y)});
  }
}

}  // namespace

GridRun::GridRun(const LaunchShape& shape, void (*body)(void*), void* argument)
    : grid_(new Grid{shape, body, argument, {}}), scheduler_(take_scheduler()) {
  Scheduler& s = *scheduler_;
  s.grid = grid_.get();
  s.wave = shape.cooperative ? shape.blocks() : static_cast<std::uint64_t>(config().wave);
  s.random = config().seed * 0x9e3779b97f4a7c15u | 1;
}

GridRun::~GridRun() {
  Scheduler& s = *scheduler_;
  if (!s.blocks.empty()) {  // begun and not finished
    running = &s;
    if (kTsan) s.main_tsan = __tsan_get_current_fiber();
    abandon(s);
    release_blocks(s);
    running = nullptr;
  }
  s.ahead = false;
  s.awaiting.clear();
  s.error.clear();
  s.grid = nullptr;
  give_back(&s);
}

void GridRun::enter() {
  if (running != nullptr) throw std::runtime_error("nested launch");
  running = scheduler_;
  blockDim = grid_->shape.block;
  gridDim = grid_->shape.grid;
  if (kTsan) scheduler_->main_tsan = __tsan_get_current_fiber();
  if (kAsan) set_main_stack(scheduler_->main);
}

void GridRun::leave() {
  if (!scheduler_->error.empty()) release_blocks(*scheduler_);
  running = nullptr;
  if (!scheduler_->error.empty()) throw std::runtime_error(scheduler_->error);
}

void GridRun::begin() {
  enter();
  Scheduler& s = *scheduler_;
  const std::uint64_t num_blocks = grid_->shape.blocks();
  s.ahead = true;
  s.ready.reset(2 * grid_->shape.threads());
  s.awaiting.reserve(2 * grid_->shape.threads());
  make_blocks(*grid_, 0, 1);
  make_blocks(*grid_, std::max<std::uint64_t>(1, num_blocks - 1), num_blocks);
  begun_ = s.blocks.size();
  tsan_release(&grid_->began);
  run_threads(s);
  leave();
}

void GridRun::finish() {
  enter();
  Scheduler& s = *scheduler_;
  std::uint64_t first = 0, end = grid_->shape.blocks();
  if (begun_ != 0) {
    s.ahead = false;
    tsan_release(&grid_->resumed);
    for (Thread* thread : s.awaiting) make_runnable(thread);
    s.awaiting.clear();
    run_threads(s);
    release_blocks(s);
    ++first;
    --end;
  }
  for (std::uint64_t i = first; s.error.empty() && i < end; i += s.wave) {
    s.ready.reset(grid_->shape.threads() * s.wave);
    make_blocks(*grid_, i, std::min<std::uint64_t>(i + s.wave, end));
    tsan_release(&grid_->began);
    run_threads(s);
    release_blocks(s);
  }
  tsan_acquire(&grid_->ended);
  leave();
}

}  // namespace emulation
