#include "cpu/page_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

namespace quire {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kRange = std::size_t{1} << 30;  // of addresses

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Of whole huge pages; no page is touched before it is used, and huge ones spare the TLB.
std::byte* map(std::size_t bytes) {
  void* const whole = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (whole == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(whole);
  auto* const aligned =
      reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(whole), kHugePage));
  const auto head = static_cast<std::size_t>(aligned - begin);
  if (head != 0) munmap(begin, head);
  munmap(aligned + bytes, kHugePage - head);
  madvise(aligned, bytes, MADV_HUGEPAGE);
  return aligned;
}

}  // namespace

PageArena::~PageArena() {
  if (free_ != end_) munmap(free_, static_cast<std::size_t>(end_ - free_));
}

void* PageArena::take(std::size_t bytes) {
  const std::size_t size = round_up(bytes, kPage);
  const std::lock_guard lock(mutex_);
  if (static_cast<std::size_t>(end_ - free_) < size) {
    std::size_t range = round_up(std::max(size, kRange), kHugePage);
    std::byte* fresh = map(range);
    if (fresh == nullptr) fresh = map(range = round_up(size, kHugePage));
    if (fresh == nullptr) return nullptr;
    if (free_ != end_) munmap(free_, static_cast<std::size_t>(end_ - free_));
    free_ = fresh;
    end_ = fresh + range;
  }
  void* const data = free_;
  free_ += size;
  return data;
}

void PageArena::give_back(void* data, std::size_t bytes) { munmap(data, round_up(bytes, kPage)); }

}  // namespace quire
