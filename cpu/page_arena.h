#pragma once
// Large buffers one behind the other in huge pages: a buffer that ends within a page leaves the rest
// of it to the next. What is not touched takes address space only. Any thread.

#include <cstddef>
#include <mutex>

namespace quire {

class PageArena {
 public:
  PageArena() = default;
  ~PageArena();
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

  // Zeros, at the beginning of a page; null where there is no memory, and errno says why.
  void* take(std::size_t bytes);
  // May outlive the arena.
  static void give_back(void* data, std::size_t bytes);

 private:
  std::mutex mutex_;
  std::byte *free_ = nullptr, *end_ = nullptr;  // of the latest range
};

}  // namespace quire
