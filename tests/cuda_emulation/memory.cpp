#include "memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "runtime.h"
#include "sanitizers.h"

namespace emulation {
namespace {

constexpr std::size_t kReservedBytes = std::size_t{256} << 30;  // addresses, not memory
// Rights change by whole huge pages: with small ones that would take longer than the work.
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kAlignment = 512;  // as cudaMalloc

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

using Allocations = std::map<const char*, std::size_t>;

struct Arena {
  char* begin = nullptr;
  std::size_t used = 0;        // bytes of addresses given out, freed ones too
  std::size_t live_bytes = 0;  // the driver's too
  int openers = 0;
  Allocations live;

  Arena();
  void protect(int rights) const { mprotect(begin, round_up(used, kHugePage), rights); }
  bool holds(const void* address) const {
    const auto* at = static_cast<const char*>(address);
    return begin <= at && at < begin + kReservedBytes;
  }
};
Arena& arena() {
  static auto* one = new Arena;  // outlives whatever is destroyed at exit
  return *one;
}
Allocations& pinned() {
  static auto* all = new Allocations;
  return *all;
}

int failing = 0;  // allocations until one fails, with it
bool fails() { return failing > 0 && --failing == 0; }

struct sigaction handler_before;
void explain(int signal, siginfo_t* info, void*) {
  if (arena().holds(info->si_addr)) {
    static constexpr char kText[] = "cuda emulation: the host touches device memory\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, kText, sizeof kText - 1);
  }
  sigaction(signal, &handler_before, nullptr);  // the access is repeated
}

Arena::Arena() {
  void* all = mmap(nullptr, kReservedBytes + kHugePage, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) {
    std::perror("cuda emulation: addresses for device memory");
    std::abort();
  }
  begin = reinterpret_cast<char*>(round_up(reinterpret_cast<std::uintptr_t>(all), kHugePage));
  madvise(begin, kReservedBytes, MADV_HUGEPAGE);
  struct sigaction action {};
  action.sa_sigaction = explain;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &handler_before);
}

// The allocation that address lies in or is the end of.
Allocations::const_iterator find(const Allocations& all, const void* address) {
  auto it = all.upper_bound(static_cast<const char*>(address));
  if (it == all.begin()) return all.end();
  --it;
  return static_cast<const char*>(address) <= it->first + it->second ? it : all.end();
}

bool is_mapped(std::uintptr_t address) {
  constexpr std::uintptr_t kPage = 4096;
  unsigned char present;
  return syscall(SYS_mincore, address / kPage * kPage, kPage, &present) == 0;
}

void give_back_pages(const char* data, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const std::size_t first = round_up(begin, kHugePage),
                    end = (begin + bytes) / kHugePage * kHugePage;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

[[noreturn]] void fault_at(const void* address, const std::string& what) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", address);
  fault(what + " (" + text + ")");
}

}  // namespace

std::size_t device_bytes() {
  static const std::size_t value = [] {
    const char* text = std::getenv("QUIRE_EMULATION_MEMORY");
    return text == nullptr ? std::size_t{8} << 30 : std::strtoull(text, nullptr, 10);
  }();
  return value;
}

void fail_allocation(int nth) { failing = nth; }
bool all_released() { return arena().live.empty() && arena().live_bytes == 0 && pinned().empty(); }

cudaError_t take_device(std::size_t bytes) {
  if (fails() || bytes > device_bytes_free()) return failed(cudaErrorMemoryAllocation);
  arena().live_bytes += bytes;
  return cudaSuccess;
}

void give_device(std::size_t bytes) { arena().live_bytes -= bytes; }

cudaError_t allocate_device(void** data, std::size_t bytes) {
  Arena& a = arena();
  const std::size_t span = round_up(bytes, kAlignment) + kAlignment;  // never touches the next
  if (span > kReservedBytes - a.used) return failed(cudaErrorMemoryAllocation);
  if (const cudaError_t error = take_device(bytes); error != cudaSuccess) return error;
  char* begin = a.begin + a.used;
  a.used += span;
  a.live[begin] = bytes;
  const DeviceAccess access;
  a.protect(PROT_READ | PROT_WRITE);  // what is new may begin a page
  std::memset(begin, 0xff, bytes);
  if (kAsan) __asan_poison_memory_region(begin + bytes, span - bytes);
  *data = begin;
  return cudaSuccess;
}

cudaError_t free_device(void* data) {
  if (data == nullptr) return cudaSuccess;
  Arena& a = arena();
  const auto it = a.live.find(static_cast<char*>(data));
  if (it == a.live.end()) return failed(cudaErrorInvalidValue);
  give_back_pages(it->first, it->second);
  if (kAsan) __asan_poison_memory_region(data, it->second);
  give_device(it->second);
  a.live.erase(it);
  return cudaSuccess;
}

std::size_t device_bytes_free() { return device_bytes() - arena().live_bytes; }

cudaError_t allocate_pinned(void** data, std::size_t bytes) {
  if (fails() || posix_memalign(data, 256, bytes != 0 ? bytes : 1) != 0)
    return failed(cudaErrorMemoryAllocation);
  std::memset(*data, 0xff, bytes);
  pinned()[static_cast<char*>(*data)] = bytes;
  return cudaSuccess;
}

cudaError_t free_pinned(void* data) {
  if (data == nullptr) return cudaSuccess;
  if (pinned().erase(static_cast<char*>(data)) == 0) return failed(cudaErrorInvalidValue);
  std::free(data);
  return cudaSuccess;
}

Space space_of(const void* address) {
  if (arena().holds(address)) {
    return find(arena().live, address) != arena().live.end() ? Space::device : Space::freed;
  }
  return find(pinned(), address) != pinned().end() ? Space::pinned : Space::pageable;
}

bool is_whole(const void* address, std::size_t bytes) {
  const Space space = space_of(address);
  if (space == Space::pageable) return true;
  if (space == Space::freed) return false;
  const Allocations& all = space == Space::device ? arena().live : pinned();
  const auto it = find(all, address);
  return static_cast<const char*>(address) + bytes <= it->first + it->second;
}

DeviceAccess::DeviceAccess() {
  if (arena().openers++ == 0) arena().protect(PROT_READ | PROT_WRITE);
}
DeviceAccess::~DeviceAccess() {
  if (--arena().openers == 0) arena().protect(PROT_NONE);
}

void find_pointers(const void* object, std::size_t bytes, const std::string& name,
                   std::vector<const void*>& found) {
  // Programs and ASan's heap lie in the first range, TSan's heap, libraries and stacks in the second; at other
  // places sanitizers keep memory whose addresses may be two ints (TSan at 0x700000000000: 28,672 and a small one).
  constexpr auto is_of_program = [](std::uintptr_t word) {
    return (word >= 0x550000000000 && word < 0x640000000000) || (word >= 0x720000000000 && word < 0x800000000000);
  };
  for (std::size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
    std::uintptr_t word;
    std::memcpy(&word, static_cast<const char*>(object) + at, sizeof word);
    if (!is_of_program(word)) continue;
    const auto* address = reinterpret_cast<const void*>(word);
    const std::string place = name + ", byte " + std::to_string(at);
    switch (space_of(address)) {
      case Space::device:
      case Space::pinned:
        found.push_back(address);
        break;
      case Space::freed:
        fault_at(address, place + " points to freed device memory");
      case Space::pageable:
        if (is_mapped(word)) fault_at(address, place + " points to host memory");
    }
  }
}

void require_live(const std::vector<const void*>& pointers) {
  for (const void* address : pointers) {
    const Space space = space_of(address);
    if (space != Space::device && space != Space::pinned)
      fault_at(address, "queued work points to memory that has been freed");
  }
}

}  // namespace emulation
