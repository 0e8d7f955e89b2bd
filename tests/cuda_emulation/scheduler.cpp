// Which thread runs next.

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>

#include "sanitizers.h"
#include "state.h"

namespace emulation {

constinit thread_local Scheduler* running = nullptr;

Thread* pick() {
  ReadyQueue& ready = scheduler().ready;
  if (ready.empty()) return nullptr;
  if (config().order == Config::reverse) return ready.pop_back();
  if (config().order == Config::random)
    std::swap(ready.at(0), ready.at(next_random() % ready.size()));
  return ready.pop_front();
}

namespace {

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

}  // namespace

void park(Thread* thread, Fiber* fiber) {
  thread->fiber = nullptr;
  if (!kTsan) scheduler().idle.push_back(fiber);
}

void enter_thread(Thread* thread) {
  give_stack(thread);
  set_current(thread);
  jump(scheduler().main, *thread->fiber);
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

namespace {

void end_thread(Thread* thread) {
  Scheduler& s = scheduler();
  thread->done = true;
  thread->block->warps[static_cast<std::size_t>(thread->id) / 32].exited |= 1u << (thread->id % 32);
  --s.live;
  if (!thread->copies.empty()) s.error = describe(*thread) + " exited with a cp.async outstanding";
  if (!thread->products.empty()) s.error = describe(*thread) + " exited with a wgmma outstanding";
  if (s.grid->shape.dependent && !thread->awaited)
    s.error = describe(*thread) + " ended without awaiting the kernel in front of its own";
  tsan_release(&s.grid->ended);
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
    if (!running->ahead) report_deadlock();
    to_main(*me->fiber);
    if (!running->error.empty()) std::abort();  // an abandoned fiber is not entered again
    return;
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
      if (running->error.empty() && running->live != 0 && !running->ahead) report_deadlock();
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

}  // namespace emulation

// Called by ASan before it prints a report.
extern "C" void __asan_on_error() {
  using namespace emulation;
  if (running != nullptr && running->current != nullptr) {
    std::fprintf(stderr, "cuda emulation: %s\n", describe(*running->current).c_str());
  }
}
