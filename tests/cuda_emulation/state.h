#pragma once
// The scheduler's data: threads of the blocks that run now, who waits where, shared memory. One OS
// thread runs a grid.

#include <memory>
#include <string>
#include <vector>

#include "core.h"
#include "fiber.h"

namespace emulation {

// What a block may have on Hopper, and gaps between variables.
constexpr std::size_t kArenaBytes = (227u + 64u) << 10;

// The last cp.async into each 16 bytes of shared memory, behind the arena: whose, and how many
// proxy fences that thread had passed. 0: none.
struct Landing {
  std::uint32_t block_number;
  std::uint16_t thread, fences;
};
constexpr std::size_t kLandingBytes = (kArenaBytes / 16 * sizeof(Landing) + 1023) / 1024 * 1024;

struct Block;

struct AsyncCopy {
  void* to;
  const void* from;
  int bytes, source_bytes, group;
};

// Registers that products of a warpgroup are still to write.
struct Accumulator {
  float* registers;
  std::vector<float> sums;
  int pending = 0;
};

struct Thread : Lane {
  Fiber* fiber = nullptr;  // null: not started, or ended
  Block* block = nullptr;
  void* tsan = nullptr;
  uint3 index{};
  int id = 0;  // in its block
  bool done = false, started = false, awaited = false;
  Site site;
  std::vector<AsyncCopy> copies;  // outstanding
  int copy_group = 0;
  unsigned barriers = 0;
  std::vector<std::unique_ptr<Accumulator>> accumulators;
  std::vector<GroupProduct> products;  // not yet waited for
  int product_group = 0, products_issued = 0;
  bool group_fenced = false;
  std::uint16_t proxy_fences = 1;
  bool fenced = false;          // TSan: a fence precedes its next atomic
  void* last_atomic = nullptr;  // TSan: and this one precedes its next fence
};

struct Pending {  // a warp collective that waits for lanes
  std::uint32_t mask, arrived;
  Combine combine;
  Site site;
};

struct Warp {
  Pending pending[32];
  int num_pending = 0;
  std::uint32_t exited = 0;
  char order[32][2];  // addresses for TSan, by first lane of the mask and parity
  std::uint8_t generation[32]{};
};

struct Barrier {
  int arrived = 0;
  Combine combine = nullptr;
  Site site;
  std::uint8_t generation = 0;
  char order[2];
  std::vector<Thread*> waiting;
};

struct Mbarrier {
  const void* word;
  int arrivals, pending;
  long bytes = 0;  // expected and not there
  unsigned phase = 0;
  std::uint16_t by, fences;  // who initialised it, and how many proxy fences that thread had passed
  std::vector<BoxCopy> coming;
  std::vector<Thread*> waiting;
  char order[2];
};

struct NamedBarrier {
  int expected = 0, arrived = 0;
  std::uint8_t generation = 0;
  std::vector<bool> came;
  std::vector<Thread*> waiting;
  char order[2];
};

struct Block {
  uint3 index{};
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  Barrier barriers[2];
  Barrier groups[8];   // of four warps
  int registers[8]{};  // of their threads, where they set them
  NamedBarrier named[16];
  std::vector<std::unique_ptr<Mbarrier>> mbarriers;
  unsigned boxes_issued = 0;
  std::uint32_t number = 0;
  char* arena = nullptr;
  std::size_t used = 0, static_bytes = 0;
  struct Variable {
    const void* key;
    char* data;
  };
  std::vector<Variable> variables;
  char* dynamic = nullptr;
};

// Ring of runnable threads, each in it at most once; never allocates inside a kernel.
class ReadyQueue {
 public:
  void reset(std::size_t capacity) {
    if (ring_.size() < capacity) ring_.resize(capacity);
    head_ = size_ = 0;
  }
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  Thread*& at(std::size_t i) {
    const std::size_t k = head_ + i;
    return ring_[k < ring_.size() ? k : k - ring_.size()];
  }
  void push(Thread* thread) { at(size_++) = thread; }
  Thread* pop_front() {
    Thread* thread = at(0);
    head_ = head_ + 1 < ring_.size() ? head_ + 1 : 0;
    --size_;
    return thread;
  }
  Thread* pop_back() { return at(--size_); }

 private:
  std::vector<Thread*> ring_;
  std::size_t head_ = 0, size_ = 0;
};

struct Grid {
  LaunchShape shape;
  void (*body)(void*);
  void* argument;
  Barrier barrier;
  char began = 0, resumed = 0, ended = 0;  // addresses for TSan
};

struct Scheduler {
  Fiber main;
  Thread* current = nullptr;
  Grid* grid = nullptr;
  ReadyQueue ready;
  bool ahead = false;             // what is in front of the grid has not ended
  std::vector<Thread*> awaiting;  // its end
  std::vector<Fiber*> idle;
  int live = 0;
  std::string error;
  std::uint64_t random = 0;
  void* main_tsan = nullptr;
  std::size_t wave = 1, block_number = 0;
  std::uint32_t blocks_made = 0;
  std::vector<std::unique_ptr<Block>> blocks;  // that run now
  std::vector<char*> arenas;
  // Under TSan an identity keeps its stack, or reused stacks would look like races; neighbouring
  // blocks use different sets, or races between them would be hidden.
  struct Identity {
    void* tsan;
    Fiber* fiber;
  };
  std::vector<std::vector<Identity>> identities;
};

extern constinit thread_local Scheduler* running;
Scheduler& scheduler();
std::uint64_t next_random();
// The thread that goes on next, or null.
Thread* pick();
// Its fiber runs until nobody can go on.
void enter_thread(Thread* thread);
void park(Thread* thread, Fiber* fiber);
void report_deadlock();
// expected threads arrive; combine runs once, over them by number.
void meet(Barrier& barrier, int expected, Combine combine, bool orders_memory, Site site);
void forget_landing(const void* to, int bytes);  // the tensor cores see what is there
std::string left_behind(const Block& block);     // at its end; empty: nothing
void make_runnable(Thread* thread);
// The current thread cannot go on: runs others; returns when somebody made this one runnable again.
void block_current(Site site);
void fiber_entry();
Block& make_block(uint3 index);
void release_block(Block& block);
std::string describe(const Thread& thread);

}  // namespace emulation
