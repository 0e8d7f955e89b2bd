#pragma once
// The emulator's core: every CUDA thread is a fiber, every barrier and warp intrinsic a rendezvous.
// Kernel code reaches this through kernel.h. Built without sanitizers, whose hooks it finds at
// run time (weak symbols).

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cuda_runtime.h"

#define EMULATION_NO_TSAN __attribute__((no_sanitize("thread"), noinline))
// Every rendezvous takes the place it is called from, for reports; clang 14 has no
// std::source_location.
#define EMULATION_SITE const char *file_ = __builtin_FILE(), int line_ = __builtin_LINE()
#define EMULATION_HERE(what) (::emulation::Site{what, file_, line_})

inline thread_local uint3 threadIdx, blockIdx;
inline constinit thread_local dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace emulation {

struct Site {
  const char* what = "";
  const char* file = "";
  int line = 0;
};
// One thread's part in a collective.
struct Lane {
  const void* in = nullptr;
  void* out = nullptr;
  std::uint32_t argument = 0;
};
// Run once, by the last thread to arrive; lanes[i] is null where lane i takes no part.
using Combine = void (*)(Lane** lanes, int count);

// All lanes in mask meet. orders_memory: as __syncwarp does and shuffles do not.
void warp_collective(std::uint32_t mask, Combine combine, const void* in, void* out,
                     std::uint32_t argument, bool orders_memory, Site site);
// All threads of the block meet. Barrier 0 is __syncthreads, 1 is CUB's.
void block_collective(int barrier, Combine combine, const void* in, void* out, Site site);
void grid_barrier(Site site);  // cooperative launches only
void shuffle(std::uint32_t mask, void* value, int size, int mode, int delta, int width, Site site);
enum class Vote { ballot, match, add, min, max, all_bits, any_bit, odd_bits };
std::uint64_t vote(std::uint32_t mask, Vote kind, std::uint64_t value, bool is_signed, Site site);

void* shared_variable(const void* key, std::size_t bytes,
                      std::size_t align);  // one per block; starts as 0xff
void* shared_dynamic();
void yield();  // in spin loops
void fence();  // __threadfence
int lane_id();
unsigned barriers_passed();  // __syncthreads calls of this thread in this block
// griddepcontrol.wait; deleted: the thread goes on and counts as one that has waited.
void await_previous_kernel(bool deleted, Site site);
// Mutation testing: true where QUIRE_EMULATION_SKIP names this place ("norm.cu:30"; a function of
// the runtime by its name), whose synchronisation is then passed over as if it were deleted. With
// QUIRE_EMULATION_SITES=FILE every place that was asked about is written there, one a line, when
// the program ends.
bool deleted(Site site);
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// cp.async. True: copy now; else the copy lands when async_copy_take hands it out.
bool async_copy_issue(void* to, const void* from, int bytes, int source_bytes);
void async_copy_commit();
bool async_copy_take(int groups_left, void** to, const void** from, int* bytes, int* source_bytes);

// Warpgroup products (wgmma). Pending sums are kept aside and their registers are NaN until a wait
// ends.
struct GroupProduct {
  float* d;  // count registers
  const void* a;
  std::uint64_t b;  // descriptor
  int count;
  bool accumulate;
  Combine compute;                     // lanes[i]->in is the thread's product, all 128 at once
  void (*touch)(const GroupProduct&);  // reads the thread's share of B
  float* sums = nullptr;               // where compute finds and leaves d
  int group = 0;
  bool computed = false;
};
void group_issue(GroupProduct product, Site site);
void group_fence();
void group_commit();
void group_wait(int groups_left, Site site);
int group_thread();  // 0 to 127
std::uint32_t shared_address(const void* pointer);
void* shared_pointer(std::uint32_t address);
// fence.proxy.async: the tensor cores see what cp.async has brought for this thread.
void proxy_fence();
void check_proxy(std::uint32_t address);  // fails where it was brought and not fenced

// Barriers in shared memory (mbarrier): the word only holds a mark, the rest is kept beside it.
constexpr int kMostCoordinates = 5;
struct BoxCopy {
  void* to = nullptr;
  std::uint64_t map[16] = {};  // of it a copy: parameters go with the thread that started the box
  int at[kMostCoordinates] = {};
  int bytes = 0;
  void (*land)(const BoxCopy&) = nullptr;
  void* issuer = nullptr;
};
void mbarrier_init(void* word, int arrivals, Site site);
void mbarrier_arrive(void* word, int expected_bytes, Site site);
void mbarrier_await(const void* word, int parity, Site site);
void box_issue(BoxCopy copy, void* word, Site site);

void named_barrier(int id, int threads, bool waits, Site site);
void set_registers(int count, bool takes, Site site);
// Written by this thread, and not yet fenced for the tensor cores.
void note_landing(const void* to, int bytes);

// Under TSan an atomic synchronises only where a __threadfence stands before or after it.
extern const bool tsan_on;
void atomic_before(void* address);
void atomic_after(void* address);
struct AtomicScope {
  void* address;
  explicit AtomicScope(void* a) : address(a) {
    if (tsan_on) atomic_before(address);
  }
  ~AtomicScope() {
    if (tsan_on) atomic_after(address);
  }
};

struct Config {
  enum Order { forward, reverse, random } order = forward;  // which runnable thread is next
  enum Async {
    late,
    eager,
    mixed
  } async = mixed;  // when a cp.async lands: at its wait, at once, either
  std::uint64_t seed = 1;
  int wave = 1;  // blocks interleaved at a time
};
// First use reads QUIRE_EMULATION_ORDER, _ASYNC, _SEED and _WAVE.
Config& config();

constexpr std::size_t kSharedWithoutOptIn = 48u
                                            << 10;  // bytes; static shared memory never has more

struct LaunchShape {
  dim3 grid, block;
  std::size_t dynamic_shared = 0;                  // bytes
  std::size_t shared_limit = kSharedWithoutOptIn;  // bytes, static and dynamic
  bool cooperative = false;
  bool dependent = false;  // may begin before what is in front of it has ended
  std::uint64_t threads() const { return std::uint64_t{block.x} * block.y * block.z; }
  std::uint64_t blocks() const { return std::uint64_t{grid.x} * grid.y * grid.z; }
};
struct Scheduler;
struct Grid;
// Runs body for every thread of a grid. Both calls throw std::runtime_error for deadlocks,
// divergent barriers, wrong masks, too much shared memory, and for threads of a dependent grid that
// end without await_previous_kernel().
class GridRun {
 public:
  GridRun(const LaunchShape& shape, void (*body)(void*), void* argument);
  ~GridRun();
  GridRun(const GridRun&) = delete;
  GridRun& operator=(const GridRun&) = delete;
  // Of a dependent grid: its first block and its last run until their threads wait for others.
  void begin();
  void finish();  // on the thread that called begin()

 private:
  void enter();
  void leave();
  std::unique_ptr<Grid> grid_;
  Scheduler* scheduler_;
  std::uint64_t begun_ = 0;  // blocks
};

}  // namespace emulation
