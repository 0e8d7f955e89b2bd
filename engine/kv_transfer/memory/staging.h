#pragma once
// A buffer of fixed size out of which ranges are taken and given back: finished prefills that wait
// to be fetched, or fetched ones that wait to be used. Any thread.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "backend/device.h"

namespace quire {

class StagingBuffer;

// Bytes of it; given back with the last reference.
class StagedRange {
 public:
  StagedRange(StagingBuffer& buffer, std::int64_t first, std::int64_t bytes, bool counts = true)
      : buffer_(buffer), first_(first), bytes_(bytes), counts_(counts) {}
  ~StagedRange();
  StagedRange(const StagedRange&) = delete;
  StagedRange& operator=(const StagedRange&) = delete;

  std::span<std::byte> bytes() const;

 private:
  StagingBuffer& buffer_;
  const std::int64_t first_, bytes_;
  const bool counts_;
};

class StagingBuffer {
 public:
  // Memory that the host reads and writes.
  explicit StagingBuffer(Buffer memory);
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  // Null: there is no such hole now. The first that is large enough is taken.
  std::shared_ptr<StagedRange> take(std::int64_t bytes) { return take(bytes, true); }
  // Takes room for what a plane works with itself: it is no request's, and not counted as used.
  std::shared_ptr<StagedRange> take_apart(std::int64_t bytes) { return take(bytes, false); }

  std::span<std::byte> all() const {
    return {static_cast<std::byte*>(memory_.data()), memory_.bytes()};
  }
  std::int64_t size() const { return static_cast<std::int64_t>(memory_.bytes()); }
  // The most that take() ever gives: all but what is taken apart.
  std::int64_t room() const;
  std::int64_t used() const;

 private:
  friend class StagedRange;
  std::shared_ptr<StagedRange> take(std::int64_t bytes, bool counts);
  void give_back(std::int64_t first, std::int64_t bytes, bool counts);

  Buffer memory_;
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::int64_t> holes_;  // first byte → bytes; no two touch
  std::int64_t used_ = 0, apart_ = 0;
};

}  // namespace quire
