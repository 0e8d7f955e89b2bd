// Barriers of some of a block's warps, and registers that warpgroups give each other.

#include "sanitizers.h"
#include "state.h"

namespace emulation {

void named_barrier(int id, int threads, bool waits, Site site) {
  Thread* me = scheduler().current;
  Block& block = *me->block;
  if (id < 1 || id > 15 || threads < 32 || threads % 32 != 0 ||
      threads > static_cast<int>(block.threads.size()))
    fail("%s at %s:%d: barrier %d of %d threads", site.what, site.file, site.line, id, threads);
  NamedBarrier& barrier = block.named[id];
  if (barrier.arrived == 0) barrier.expected = threads;
  if (barrier.expected != threads)
    fail("%s at %s:%d: barrier %d of %d threads, of %d to others", site.what, site.file, site.line,
         id, threads, barrier.expected);
  {
    TsanIgnore ignore;
    barrier.came.resize(block.threads.size());
    if (barrier.came[static_cast<std::size_t>(me->id)])
      fail("%s at %s:%d: a thread comes twice to one phase of barrier %d", site.what, site.file,
           site.line, id);
    barrier.came[static_cast<std::size_t>(me->id)] = true;
  }
  const int parity = barrier.generation & 1;
  tsan_release(&barrier.order[parity]);
  if (++barrier.arrived < threads) {
    if (!waits) return;
    {
      TsanIgnore ignore;
      barrier.waiting.push_back(me);
    }
    block_current(site);
  } else {
    TsanIgnore ignore;
    barrier.arrived = 0;
    ++barrier.generation;
    barrier.came.assign(barrier.came.size(), false);
    for (Thread* thread : barrier.waiting) make_runnable(thread);
    barrier.waiting.clear();
  }
  if (waits) tsan_acquire(&barrier.order[parity]);
}

// A multiprocessor has 65,536 registers; a block alone on it is launched with as many as fit.
void set_registers(int count, bool takes, Site site) {
  Thread* me = scheduler().current;
  Block& block = *me->block;
  const int threads = static_cast<int>(block.threads.size()), group = me->id / 128;
  if (threads % 128 != 0)
    fail("%s at %s:%d: the block has no whole warpgroups", site.what, site.file, site.line);
  const int launched = std::min(255, 65536 / threads) / 8 * 8;
  if (count % 8 != 0 || count < 24 || count > 256 || (takes ? count < launched : count > launched))
    fail("%s at %s:%d: %d registers, of %d", site.what, site.file, site.line, count, launched);
  block.registers[group] = count;
  meet(block.groups[group], 128, nullptr, false, site);
  int all = 0;
  for (const int registers : block.registers) all += registers * 128;
  if (all > launched * threads)
    fail("%s at %s:%d: warpgroups take %d registers of %d", site.what, site.file, site.line, all,
         launched * threads);
}

}  // namespace emulation
