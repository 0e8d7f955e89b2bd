#pragma once
// Memory that several processes share, and what they wait for in it. Everything here lies in memory
// that begins as zeros, and needs no constructor: processes may come in any order.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

// A file without a name, mapped; gone with the last process that has it. Pages are there once they
// are touched. Move-only.
class SharedMemory {
 public:
  // Throws Failure. The descriptor is closed at exec unless whoever forks says otherwise.
  static SharedMemory create(const char* what, std::size_t bytes);
  // All of what another process created; takes the descriptor.
  static SharedMemory open(int descriptor);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept { swap(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    SharedMemory(std::move(other)).swap(*this);
    return *this;
  }
  ~SharedMemory();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  int descriptor() const { return descriptor_; }

 private:
  SharedMemory(int descriptor, std::size_t bytes);
  void swap(SharedMemory& other) noexcept;

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  int descriptor_ = -1;
};

// The first failure among those who share is everybody's.
class SharedFate {
 public:
  // Only the first one's words count; they are cut where they are too long.
  void fail(std::string_view why);
  bool has_failed() const { return state_.load(std::memory_order_acquire) == kFailed; }
  // Throws Failure with the words.
  void check() const;

 private:
  static constexpr std::uint32_t kBeingWritten = 1, kFailed = 2;
  std::atomic<std::uint32_t> state_;
  char words_[2044];
};

// A number that one process raises and others wait for; it wraps.
class SharedCount {
 public:
  void raise();
  std::uint32_t value() const { return value_.load(std::memory_order_acquire); }

  // Until it has come to `target`, which it is at most 2^31 behind of. Spins for a moment, then
  // sleeps. With a fate, it is looked at every now and then, and Failure is thrown with its words.
  void wait_for(std::uint32_t target, const SharedFate* fate);

 private:
  bool has_come_to(std::uint32_t target) const {
    return static_cast<std::int32_t>(value_.load(std::memory_order_acquire) - target) >= 0;
  }

  alignas(64) std::atomic<std::uint32_t> value_;
  std::atomic<std::uint32_t> sleepers_;
};

}  // namespace quire
