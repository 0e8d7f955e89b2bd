// Barriers in shared memory that threads and copies arrive at, and when those copies land.

#include <algorithm>
#include <cstring>

#include "sanitizers.h"
#include "state.h"

namespace emulation {
namespace {

constexpr std::uint64_t kMark = 0x5eab0000ba441e40;  // what a barrier's word holds
constexpr long kMostBytes = (1 << 20) - 1;
constexpr int kMostArrivals = (1 << 20) - 1;

Thread& me() { return *scheduler().current; }

Mbarrier& find(const void* word, Site site) {
  for (const auto& barrier : me().block->mbarriers) {
    if (barrier->word != word) continue;
    std::uint64_t held;
    std::memcpy(&held, word, sizeof held);
    if (held != kMark)
      fail("%s at %s:%d: the barrier was overwritten", site.what, site.file, site.line);
    return *barrier;
  }
  fail("%s at %s:%d: the barrier was not initialised", site.what, site.file, site.line);
}

void end_phase_if_complete(Mbarrier& barrier) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  ++barrier.phase;
  barrier.pending = barrier.arrivals;
  for (Thread* thread : barrier.waiting) make_runnable(thread);
  TsanIgnore ignore;
  barrier.waiting.clear();
}

// Whoever calls, to TSan it is the thread that started the copy.
void land(Mbarrier& barrier, const BoxCopy& copy) {
  Thread* issuer = static_cast<Thread*>(copy.issuer);
  const bool elsewhere = kTsan && issuer != &me();
  if (elsewhere) __tsan_switch_to_fiber(issuer->tsan, kNoSynchronisation);
  copy.land(copy);
  forget_landing(copy.to, copy.bytes);
  tsan_release(&barrier.order[barrier.phase & 1]);
  if (elsewhere) __tsan_switch_to_fiber(me().tsan, kNoSynchronisation);
  barrier.bytes -= copy.bytes;
  if (barrier.bytes < -kMostBytes) fail("more bytes than a barrier can count have landed");
  end_phase_if_complete(barrier);
}

void land_one(Mbarrier& barrier) {
  BoxCopy copy;
  {
    TsanIgnore ignore;
    copy = barrier.coming.front();
    barrier.coming.erase(barrier.coming.begin());
  }
  land(barrier, copy);
}

bool lands_now(Block& block) {
  const Config::Async when = config().async;
  return when == Config::eager || (when == Config::mixed && block.boxes_issued++ % 2 == 0);
}

}  // namespace

void mbarrier_init(void* word, int arrivals, Site site) {
  if (arrivals < 1 || arrivals > kMostArrivals || reinterpret_cast<std::uintptr_t>(word) % 8 != 0)
    fail("%s at %s:%d: %d arrivals at %p", site.what, site.file, site.line, arrivals, word);
  TsanIgnore ignore;
  auto& all = me().block->mbarriers;
  std::erase_if(all, [&](const auto& barrier) { return barrier->word == word; });
  all.push_back(std::make_unique<Mbarrier>());
  Mbarrier& barrier = *all.back();
  std::memcpy(word, &kMark, sizeof kMark);
  barrier.word = word;
  barrier.arrivals = barrier.pending = arrivals;
  barrier.by = static_cast<std::uint16_t>(me().id);
  barrier.fences = me().proxy_fences;
}

void mbarrier_arrive(void* word, int bytes, Site site) {
  Mbarrier& barrier = find(word, site);
  if (barrier.pending == 0)
    fail("%s at %s:%d: more than the %d arrivals of a phase", site.what, site.file, site.line,
         barrier.arrivals);
  tsan_release(&barrier.order[barrier.phase & 1]);
  barrier.bytes += bytes;
  if (bytes < 0 || barrier.bytes > kMostBytes)
    fail("%s at %s:%d expects %d bytes", site.what, site.file, site.line, bytes);
  --barrier.pending;
  end_phase_if_complete(barrier);
}

void mbarrier_await(const void* word, int parity, Site site) {
  Mbarrier& barrier = find(word, site);
  if (parity != 0 && parity != 1)
    fail("%s at %s:%d: parity %d", site.what, site.file, site.line, parity);
  while (static_cast<int>(barrier.phase & 1) == parity) {
    if (!barrier.coming.empty()) {
      land_one(barrier);
      continue;
    }
    {
      TsanIgnore ignore;
      barrier.waiting.push_back(&me());
    }
    block_current(site);
  }
  tsan_acquire(&barrier.order[parity]);
}

void box_issue(BoxCopy copy, void* word, Site site) {
  Thread& thread = me();
  const Block& block = *thread.block;
  Mbarrier& barrier = find(word, site);
  if (block.threads[barrier.by].proxy_fences == barrier.fences)
    fail("%s at %s:%d: thread %d initialised the barrier, and has not fenced it for copies",
         site.what, site.file, site.line, barrier.by);
  const char* to = static_cast<const char*>(copy.to);
  if (to < block.arena || to + copy.bytes > block.arena + block.used ||
      reinterpret_cast<std::uintptr_t>(to) % 128 != 0)
    fail("%s at %s:%d: %d bytes to %p", site.what, site.file, site.line, copy.bytes, copy.to);
  copy.issuer = &thread;
  if (lands_now(*thread.block) && barrier.coming.empty()) return land(barrier, copy);
  TsanIgnore ignore;
  barrier.coming.push_back(copy);
  if (barrier.waiting.empty()) return;
  make_runnable(barrier.waiting.back());  // it will have the copy land
  barrier.waiting.pop_back();
}

std::string left_behind(const Block& block) {
  for (const auto& barrier : block.mbarriers) {
    if (!barrier->coming.empty())
      return describe(block.threads[0]) + ": the block ended with a box outstanding";
  }
  for (int id = 1; id < 16; ++id) {
    if (block.named[id].arrived != 0)
      return describe(block.threads[0]) + ": the block ended with " +
             std::to_string(block.named[id].arrived) + " threads at barrier " + std::to_string(id);
  }
  return "";
}

}  // namespace emulation
