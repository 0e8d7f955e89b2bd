#include "engine/kv_transfer/memory/staging.h"

#include <algorithm>
#include <utility>

namespace quire {
namespace {

constexpr std::int64_t kAlignment = 64;  // bytes

std::int64_t rounded(std::int64_t bytes) {
  return std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
}

}  // namespace

StagedRange::~StagedRange() { buffer_.give_back(first_, rounded(bytes_), counts_); }

std::span<std::byte> StagedRange::bytes() const {
  return {static_cast<std::byte*>(buffer_.memory_.data()) + first_,
          static_cast<std::size_t>(bytes_)};
}

StagingBuffer::StagingBuffer(Buffer memory) : memory_(std::move(memory)) {
  if (const std::int64_t whole = size() / kAlignment * kAlignment; whole > 0) holes_[0] = whole;
}

std::int64_t StagingBuffer::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

std::int64_t StagingBuffer::room() const {
  const std::lock_guard lock(mutex_);
  return size() / kAlignment * kAlignment - apart_;
}

std::shared_ptr<StagedRange> StagingBuffer::take(std::int64_t bytes, bool counts) {
  const std::int64_t wanted = rounded(bytes);
  std::int64_t first = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto hole =
        std::ranges::find_if(holes_, [&](const auto& one) { return one.second >= wanted; });
    if (hole == holes_.end()) return nullptr;
    first = hole->first;
    const std::int64_t rest = hole->second - wanted;
    holes_.erase(hole);
    if (rest > 0) holes_[first + wanted] = rest;
    (counts ? used_ : apart_) += wanted;
  }
  return std::make_shared<StagedRange>(*this, first, bytes, counts);
}

void StagingBuffer::give_back(std::int64_t first, std::int64_t bytes, bool counts) {
  const std::lock_guard lock(mutex_);
  (counts ? used_ : apart_) -= bytes;
  auto next = holes_.lower_bound(first);
  if (next != holes_.end() && first + bytes == next->first) {
    bytes += next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == first) {
      before->second += bytes;
      return;
    }
  }
  holes_[first] = bytes;
}

}  // namespace quire
