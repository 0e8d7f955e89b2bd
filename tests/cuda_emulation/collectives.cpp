// Where threads meet: barriers, warp intrinsics, fences.

#include <algorithm>
#include <bit>
#include <cstring>

#include "sanitizers.h"
#include "state.h"

namespace emulation {
namespace {

void copy_bytes(void* to, const void* from, int bytes) {
  for (int i = 0; i < bytes; ++i)
    static_cast<volatile char*>(to)[i] = static_cast<const char*>(from)[i];
}

Pending& join(Warp& warp, std::uint32_t mask, Combine combine, Site site) {
  for (int i = 0; i < warp.num_pending; ++i) {
    Pending& p = warp.pending[i];
    if ((p.mask & mask) == 0) continue;
    if (p.mask != mask || p.combine != combine || p.site.line != site.line) {
      fail("%s at %s:%d (mask %08x) meets %s at %s:%d (mask %08x)", site.what, site.file, site.line,
           mask, p.site.what, p.site.file, p.site.line, p.mask);
    }
    return p;
  }
  warp.pending[warp.num_pending] = {mask, 0, combine, site};
  return warp.pending[warp.num_pending++];
}

}  // namespace

void meet(Barrier& barrier, int expected, Combine combine, bool orders_memory, Site site) {
  Thread* me = scheduler().current;
  if (barrier.arrived == 0) {
    barrier.combine = combine;
    barrier.site = site;
  }
  if (barrier.combine != combine || barrier.site.line != site.line ||
      std::strcmp(barrier.site.file, site.file) != 0) {
    fail("divergent barrier: %s at %s:%d meets %s at %s:%d", site.what, site.file, site.line,
         barrier.site.what, barrier.site.file, barrier.site.line);
  }
  const int parity = barrier.generation & 1;
  if (orders_memory) tsan_release(&barrier.order[parity]);
  {
    TsanIgnore ignore;
    barrier.waiting.push_back(me);
  }
  if (++barrier.arrived < expected) {
    block_current(site);
  } else {
    TsanIgnore ignore;
    barrier.arrived = 0;
    ++barrier.generation;
    std::vector<Thread*> waiting;
    waiting.swap(barrier.waiting);
    if (combine != nullptr) {
      std::sort(waiting.begin(), waiting.end(), [](Thread* a, Thread* b) { return a->id < b->id; });
      std::vector<Lane*> lanes(waiting.begin(), waiting.end());
      combine(lanes.data(), static_cast<int>(lanes.size()));
    }
    for (Thread* thread : waiting) {
      if (thread != me) make_runnable(thread);
    }
    waiting.clear();
    if (barrier.waiting.empty()) barrier.waiting.swap(waiting);  // keep the capacity
  }
  if (orders_memory) tsan_acquire(&barrier.order[parity]);
}

namespace {

// A function per mode, so that different intrinsics never meet.
template <int kMode>
void shuffle_lanes(Lane** lanes, int) {
  std::uint64_t values[32];
  for (int i = 0; i < 32; ++i) {
    if (lanes[i] != nullptr)
      copy_bytes(&values[i], lanes[i]->in, static_cast<int>(lanes[i]->argument >> 24));
  }
  for (int i = 0; i < 32; ++i) {
    if (lanes[i] == nullptr) continue;
    const std::uint32_t a = lanes[i]->argument;
    const int bytes = static_cast<int>(a >> 24), width = static_cast<int>(a >> 8 & 0xff),
              delta = static_cast<int>(a & 0xff);
    const int low = i & ~(width - 1), high = low + width - 1;
    int from = kMode == 0   ? low | (delta & (width - 1))
               : kMode == 1 ? i - delta
               : kMode == 2 ? i + delta
                            : i ^ delta;
    if (from < low || from > high) from = i;
    if (lanes[from] == nullptr) {
      raw_fill(lanes[i]->out, 0xff,
               static_cast<std::size_t>(bytes));  // undefined in CUDA: garbage here
    } else {
      copy_bytes(lanes[i]->out, &values[from], bytes);
    }
  }
}

std::uint64_t combine_votes(Vote kind, std::uint64_t a, std::uint64_t b, bool is_signed) {
  const bool less = is_signed ? static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b)
                              : static_cast<std::uint32_t>(a) < static_cast<std::uint32_t>(b);
  switch (kind) {
    case Vote::add:
      return a + b;
    case Vote::min:
      return less ? a : b;
    case Vote::max:
      return less ? b : a;
    case Vote::all_bits:
      return a & b;
    case Vote::any_bit:
      return a | b;
    default:
      return a ^ b;
  }
}

template <Vote kKind>
void vote_lanes(Lane** lanes, int) {
  const auto value = [&](int i) { return *static_cast<const std::uint64_t*>(lanes[i]->in); };
  std::uint64_t result = 0;
  bool first = true;
  for (int i = 0; i < 32; ++i) {
    if (lanes[i] == nullptr) continue;
    if constexpr (kKind == Vote::ballot) {
      result |= (value(i) & 1) << i;
    } else if constexpr (kKind != Vote::match) {
      result = first ? value(i) : combine_votes(kKind, result, value(i), lanes[i]->argument != 0);
    }
    first = false;
  }
  for (int i = 0; i < 32; ++i) {
    if (lanes[i] == nullptr) continue;
    if constexpr (kKind == Vote::match) {
      result = 0;
      for (int j = 0; j < 32; ++j) {
        if (lanes[j] != nullptr && value(j) == value(i)) result |= std::uint64_t{1} << j;
      }
    }
    *static_cast<std::uint64_t*>(lanes[i]->out) = result;
  }
}

}  // namespace

void warp_collective(std::uint32_t mask, Combine combine, const void* in, void* out,
                     std::uint32_t argument, bool orders_memory, Site site) {
  Thread* me = scheduler().current;
  const std::size_t first = static_cast<std::size_t>(me->id) / 32 * 32;
  Warp& warp = me->block->warps[first / 32];
  const std::uint32_t bit = 1u << (me->id % 32);
  if ((mask & bit) == 0) {
    fail("%s at %s:%d: calling lane is not in mask %08x", site.what, site.file, site.line, mask);
  }
  if ((mask & warp.exited) != 0) {
    fail("%s at %s:%d: lanes %08x of mask %08x have exited or do not exist", site.what, site.file,
         site.line, mask & warp.exited, mask);
  }
  Pending& pending = join(warp, mask, combine, site);
  me->in = in;
  me->out = out;
  me->argument = argument;
  pending.arrived |= bit;
  const int slot = std::countr_zero(mask);
  const int parity = warp.generation[slot] & 1;
  if (orders_memory) tsan_release(&warp.order[slot][parity]);
  if (pending.arrived != mask) {
    block_current(site);
  } else {
    Thread* threads = &me->block->threads[first];
    if (combine != nullptr) {
      TsanIgnore ignore;
      Lane* lanes[32];
      for (int i = 0; i < 32; ++i) lanes[i] = mask >> i & 1 ? threads + i : nullptr;
      combine(lanes, 32);
    }
    pending = warp.pending[--warp.num_pending];
    ++warp.generation[slot];
    for (std::uint32_t m = mask & ~bit; m != 0; m &= m - 1)
      make_runnable(threads + std::countr_zero(m));
  }
  if (orders_memory) tsan_acquire(&warp.order[slot][parity]);
}

void block_collective(int barrier, Combine combine, const void* in, void* out, Site site) {
  Thread* me = scheduler().current;
  me->in = in;
  me->out = out;
  if (barrier == 0) ++me->barriers;
  meet(me->block->barriers[barrier], static_cast<int>(me->block->threads.size()), combine, true,
       site);
}

void grid_barrier(Site site) {
  Grid& g = *scheduler().grid;
  const dim3 grid = g.shape.grid, block = g.shape.block;
  const auto count = grid.x * grid.y * grid.z * block.x * block.y * block.z;
  meet(g.barrier, static_cast<int>(count), nullptr, true, site);
}

void shuffle(std::uint32_t mask, void* value, int size, int mode, int delta, int width, Site site) {
  static constexpr Combine kModes[] = {shuffle_lanes<0>, shuffle_lanes<1>, shuffle_lanes<2>,
                                       shuffle_lanes<3>};
  const auto argument = static_cast<std::uint32_t>(size) << 24 |
                        static_cast<std::uint32_t>(width & 0xff) << 8 |
                        static_cast<std::uint32_t>(delta & 0xff);
  warp_collective(mask, kModes[mode], value, value, argument, false, site);
}

std::uint64_t vote(std::uint32_t mask, Vote kind, std::uint64_t value, bool is_signed, Site site) {
  static constexpr Combine kKinds[] = {vote_lanes<Vote::ballot>,  vote_lanes<Vote::match>,
                                       vote_lanes<Vote::add>,     vote_lanes<Vote::min>,
                                       vote_lanes<Vote::max>,     vote_lanes<Vote::all_bits>,
                                       vote_lanes<Vote::any_bit>, vote_lanes<Vote::odd_bits>};
  std::uint64_t result = 0;
  warp_collective(mask, kKinds[static_cast<int>(kind)], &value, &result, is_signed ? 1 : 0, false,
                  site);
  return result;
}

void await_previous_kernel(bool deleted, Site site) {
  Thread* me = scheduler().current;
  me->awaited = true;
  if (deleted) return;
  if (scheduler().ahead) {
    scheduler().awaiting.push_back(me);
    block_current(site);
  }
  tsan_acquire(&scheduler().grid->resumed);
}

void yield() {
  make_runnable(scheduler().current);
  block_current({"yield", "", 0});
}

void fence() {
  if (!kTsan) return;
  Thread* me = scheduler().current;
  if (me->last_atomic != nullptr) __tsan_acquire(me->last_atomic);
  me->fenced = true;
}

void atomic_before(void* address) {
  if (scheduler().current->fenced) __tsan_release(address);
}
void atomic_after(void* address) { scheduler().current->last_atomic = address; }

int lane_id() { return scheduler().current->id % 32; }
unsigned barriers_passed() { return scheduler().current->barriers; }

bool async_copy_issue(void* to, const void* from, int bytes, int source_bytes) {
  const auto address =
      reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  if ((bytes != 4 && bytes != 8 && bytes != 16) || address % static_cast<unsigned>(bytes) != 0) {
    fail("cp.async: %d bytes, to %p, from %p: bad size or alignment", bytes, to, from);
  }
  const Config::Async when = config().async;
  if (when == Config::eager || (when == Config::mixed && (next_random() & 1) != 0)) {
    note_landing(to, bytes);
    return true;
  }
  TsanIgnore ignore;
  Thread* me = scheduler().current;
  me->copies.push_back({to, from, bytes, source_bytes, me->copy_group});
  return false;
}

void async_copy_commit() { ++scheduler().current->copy_group; }

bool async_copy_take(int groups_left, void** to, const void** from, int* bytes, int* source_bytes) {
  TsanIgnore ignore;
  Thread* me = scheduler().current;
  if (me->copies.empty() || me->copies.front().group >= me->copy_group - groups_left) return false;
  const AsyncCopy copy = me->copies.front();
  me->copies.erase(me->copies.begin());
  note_landing(copy.to, copy.bytes);
  *to = copy.to;
  *from = copy.from;
  *bytes = copy.bytes;
  *source_bytes = copy.source_bytes;
  return true;
}

}  // namespace emulation
