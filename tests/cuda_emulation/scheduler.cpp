// Which thread runs next, and the life of a grid.

#include <pthread.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>

#include "sanitizers.h"
#include "state.h"

namespace emulation {
namespace {

thread_local Scheduler* running = nullptr;

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

Thread* pick() {
  ReadyQueue& ready = scheduler().ready;
  if (ready.empty()) return nullptr;
  if (config().order == Config::reverse) return ready.pop_back();
  if (config().order == Config::random)
    std::swap(ready.at(0), ready.at(next_random() % ready.size()));
  return ready.pop_front();
}

void set_current(Thread* thread) {
  scheduler().current = thread;
  threadIdx = thread->index;
  blockIdx = thread->block->index;
  if (!kTsan) return;
  __tsan_switch_to_fiber(thread->tsan, kNoSynchronisation);
  if (!thread->started) {
    thread->started = true;
    __tsan_acquire(&scheduler().grid->began);
  }
}

void give_stack(Thread* thread) {
  if (thread->fiber != nullptr) return;
  std::vector<Fiber*>& idle = scheduler().idle;
  if (idle.empty()) {
    thread->fiber = create_fiber(fiber_entry);
  } else {
    thread->fiber = idle.back();
    idle.pop_back();
  }
}

void to_main(Fiber& from) {
  if (kTsan) __tsan_switch_to_fiber(scheduler().main_tsan, kNoSynchronisation);
  jump(from, scheduler().main);
}

void park(Thread* thread, Fiber* fiber) {
  thread->fiber = nullptr;
  if (!kTsan) scheduler().idle.push_back(fiber);
}

void report_deadlock() {
  std::map<std::string, std::pair<int, std::string>> places;
  for (const auto& block : scheduler().blocks) {
    for (const Thread& thread : block->threads) {
      char place[512];
      std::snprintf(place, sizeof place, thread.done ? "exited" : "waiting in %s at %s:%d",
                    thread.site.what, thread.site.file, thread.site.line);
      auto& [count, example] = places[place];
      if (count++ == 0) example = describe(thread);
    }
  }
  std::string& error = scheduler().error;
  error = "deadlock (divergent barrier or wrong mask):";
  for (const auto& [place, threads] : places) {
    error +=
        "\n  " + std::to_string(threads.first) + " thread(s) " + place + ", e.g. " + threads.second;
  }
  tsan_release(&scheduler().grid->ended);
}

void end_thread(Thread* thread) {
  Scheduler& s = scheduler();
  thread->done = true;
  thread->block->warps[static_cast<std::size_t>(thread->id) / 32].exited |= 1u << (thread->id % 32);
  --s.live;
  if (!thread->copies.empty()) s.error = describe(*thread) + " exited with a cp.async outstanding";
  if (!thread->products.empty()) s.error = describe(*thread) + " exited with a wgmma outstanding";
  tsan_release(&s.grid->ended);
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

void run_blocks(Scheduler& s) {
  if (Thread* first = pick()) {
    give_stack(first);
    set_current(first);
    jump(s.main, *first->fiber);
  }
  for (const auto& block : s.blocks) {
    if (s.error.empty()) s.error = left_behind(*block);
  }
  if (!s.error.empty()) abandon(s);
  for (const auto& block : s.blocks) release_block(*block);
  s.live = 0;
  s.current = nullptr;
  TsanIgnore ignore;
  s.blocks.clear();
}

void run_grid(Scheduler& s, Grid& grid, std::uint64_t num_blocks, std::uint64_t threads) {
  const dim3 size = grid.shape.grid;
  for (std::uint64_t begin = 0; s.error.empty() && begin < num_blocks; begin += s.wave) {
    s.ready.reset(threads * s.wave);
    for (std::uint64_t i = begin; i < std::min<std::uint64_t>(begin + s.wave, num_blocks); ++i) {
      const std::uint64_t k = config().order == Config::reverse ? num_blocks - 1 - i : i;
      make_block({static_cast<unsigned>(k % size.x), static_cast<unsigned>(k / size.x % size.y),
                  static_cast<unsigned>(k / size.x / size.y)});
    }
    tsan_release(&grid.began);
    run_blocks(s);
  }
  tsan_acquire(&grid.ended);
}

}  // namespace

const bool tsan_on = kTsan;

Scheduler& scheduler() { return *running; }

std::uint64_t next_random() {  // xorshift64
  std::uint64_t& x = running->random;
  x ^= x << 13;
  x ^= x >> 7;
  return x ^= x << 17;
}

std::string describe(const Thread& thread) {
  char text[128];
  const uint3 b = thread.block->index;
  std::snprintf(text, sizeof text, "block (%u,%u,%u) thread %d", b.x, b.y, b.z, thread.id);
  return text;
}

void make_runnable(Thread* thread) { running->ready.push(thread); }

void block_current(Site site) {
  Thread* me = running->current;
  me->site = site;
  Thread* next = pick();
  if (next == nullptr) {
    report_deadlock();
    to_main(*me->fiber);
    std::abort();  // an abandoned fiber is not entered again
  }
  if (next == me) return;
  give_stack(next);
  set_current(next);
  jump(*me->fiber, *next->fiber);
}

void fiber_entry() {
  if (kAsan) __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
  for (;;) {
    Thread* thread = running->current;
    Fiber* fiber = thread->fiber;
    try {
      running->grid->body(running->grid->argument);
    } catch (const std::exception& error) {
      running->error = describe(*thread) + ": exception: " + error.what();
    }
    end_thread(thread);
    Thread* next = running->error.empty() ? pick() : nullptr;
    if (next == nullptr) {
      if (running->error.empty() && running->live != 0) report_deadlock();
      park(thread, fiber);
      to_main(*fiber);
    } else if (next->fiber == nullptr) {  // has not started: run it right here, no switch
      thread->fiber = nullptr;
      next->fiber = fiber;
      set_current(next);
    } else {
      park(thread, fiber);
      set_current(next);
      jump(*fiber, *next->fiber);
    }
  }
}

Config& config() {
  static Config shared = [] {
    Config c;
    const auto text = [](const char* name) {
      const char* value = std::getenv(name);
      return std::string(value != nullptr ? value : "");
    };
    const std::string order = text("QUIRE_EMULATION_ORDER"), async = text("QUIRE_EMULATION_ASYNC");
    if (order == "reverse") c.order = Config::reverse;
    if (order == "random") c.order = Config::random;
    if (async == "late") c.async = Config::late;
    if (async == "eager") c.async = Config::eager;
    if (const std::string seed = text("QUIRE_EMULATION_SEED"); !seed.empty())
      c.seed = std::stoull(seed);
    if (const std::string wave = text("QUIRE_EMULATION_WAVE"); !wave.empty())
      c.wave = std::stoi(wave);
    return c;
  }();
  return shared;
}

void fail(const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  running->error = describe(*running->current) + ": " + text;
  tsan_release(&running->grid->ended);
  to_main(*running->current->fiber);
  std::abort();
}

void run(const LaunchShape& shape, void (*body)(void*), void* argument) {
  const std::uint64_t threads = std::uint64_t{shape.block.x} * shape.block.y * shape.block.z;
  const std::uint64_t num_blocks = std::uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z;
  if (running != nullptr) throw std::runtime_error("nested launch");
  Grid state{shape, body, argument, {}};
  running = take_scheduler();
  Scheduler& s = *running;
  s.grid = &state;
  s.wave = shape.cooperative ? num_blocks : static_cast<std::uint64_t>(config().wave);
  s.random = config().seed * 0x9e3779b97f4a7c15u | 1;
  blockDim = shape.block;
  gridDim = shape.grid;
  if (kTsan) s.main_tsan = __tsan_get_current_fiber();
  if (kAsan) set_main_stack(s.main);
  run_grid(s, state, num_blocks, threads);
  const std::string error = std::move(s.error);
  s.error.clear();
  s.grid = nullptr;
  running = nullptr;
  give_back(&s);
  if (!error.empty()) throw std::runtime_error(error);
}

}  // namespace emulation

// Called by ASan before it prints a report.
extern "C" void __asan_on_error() {
  using namespace emulation;
  if (running != nullptr && running->current != nullptr) {
    std::fprintf(stderr, "cuda emulation: %s\n", describe(*running->current).c_str());
  }
}
