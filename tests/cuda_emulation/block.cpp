// Threads and shared memory of one block.

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "sanitizers.h"
#include "state.h"

namespace emulation {
namespace {

char* take_arena(Scheduler& s) {
  if (kTsan) {  // mmap gives the block's shared memory a fresh shadow
    return static_cast<char*>(mmap(nullptr, kArenaBytes + kLandingBytes, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  if (s.arenas.empty()) {
    auto* arena = static_cast<char*>(std::aligned_alloc(1024, kArenaBytes + kLandingBytes));
    std::memset(arena + kArenaBytes, 0, kLandingBytes);
    if (kAsan) __asan_poison_memory_region(arena, kArenaBytes);
    return arena;
  }
  char* arena = s.arenas.back();
  s.arenas.pop_back();
  return arena;
}

std::vector<Scheduler::Identity>& take_identities(Scheduler& s, std::size_t count) {
  const std::size_t sets = std::max<std::size_t>(3, s.wave);
  if (s.identities.size() < sets) s.identities.resize(sets);
  auto& set = s.identities[s.block_number++ % sets];
  while (set.size() < count) set.push_back({__tsan_create_fiber(0), create_fiber(fiber_entry)});
  return set;
}

// Exact bytes, poisoned around, filled with garbage (NaN, −1).
char* carve(Block& block, std::size_t bytes, std::size_t align) {
  align = std::max<std::size_t>(align, 16);
  block.used = (block.used + 32 + align - 1) / align * align;
  char* data = block.arena + block.used;
  block.used += bytes;
  raw_fill(data, 0xff, bytes);
  if (kAsan) __asan_unpoison_memory_region(data, bytes);
  return data;
}

}  // namespace

Block& make_block(uint3 index) {
  Scheduler& s = scheduler();
  const dim3 size = s.grid->shape.block;
  const std::size_t count = std::size_t{size.x} * size.y * size.z;
  s.blocks.push_back(std::make_unique<Block>());
  Block& block = *s.blocks.back();
  block.index = index;
  block.threads.resize(count);
  block.warps.resize((count + 31) / 32);
  block.arena = take_arena(s);
  block.variables.reserve(64);
  for (Barrier& barrier : block.barriers) barrier.waiting.reserve(count);
  for (Barrier& group : block.groups) group.waiting.reserve(128);
  block.number = ++s.blocks_made;
  auto* identities = kTsan ? &take_identities(s, count) : nullptr;
  for (std::size_t i = 0; i < count; ++i) {
    Thread& thread = block.threads[i];
    thread.block = &block;
    thread.id = static_cast<int>(i);
    thread.index = {static_cast<unsigned>(i % size.x), static_cast<unsigned>(i / size.x % size.y),
                    static_cast<unsigned>(i / size.x / size.y)};
    if (identities != nullptr) {
      thread.tsan = (*identities)[i].tsan;
      thread.fiber = (*identities)[i].fiber;
    }
    make_runnable(&thread);
  }
  for (std::size_t i = count; i < block.warps.size() * 32; ++i)
    block.warps.back().exited |= 1u << (i % 32);
  s.live += static_cast<int>(count);
  return block;
}

void release_block(Block& block) {
  if (kAsan) __asan_poison_memory_region(block.arena, block.used);
  if (kTsan) {
    munmap(block.arena, kArenaBytes + kLandingBytes);
  } else {
    scheduler().arenas.push_back(block.arena);
  }
}

void* shared_variable(const void* key, std::size_t bytes, std::size_t align) {
  TsanIgnore ignore;
  Block& block = *scheduler().current->block;
  for (const Block::Variable& variable : block.variables) {
    if (variable.key == key) return variable.data;
  }
  const LaunchShape& shape = scheduler().grid->shape;
  block.static_bytes += bytes;
  if (block.static_bytes > kSharedWithoutOptIn ||
      block.static_bytes + shape.dynamic_shared > shape.shared_limit) {
    fail("shared memory: %zu bytes static and %zu dynamic; the limit is %zu", block.static_bytes,
         shape.dynamic_shared, shape.shared_limit);
  }
  block.variables.push_back({key, carve(block, bytes, align)});
  return block.variables.back().data;
}

void* shared_dynamic() {
  Block& block = *scheduler().current->block;
  if (block.dynamic == nullptr)
    block.dynamic = carve(block, scheduler().grid->shape.dynamic_shared, 1024);
  return block.dynamic;
}

}  // namespace emulation
