#pragma once
// A host device that fills the KV cache's pages with NaN when told: whoever reads a page that
// nobody wrote for it gets NaN for an answer.

#include <algorithm>
#include <cassert>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/forwarding_device.h"

namespace quire::test {

class PoisonDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  // All of the cache's tensors, which have these sizes; other memory is left alone.
  void poison_tensors(const std::vector<std::size_t>& sizes) {
    std::erase_if(tensors_, [&](const auto& tensor) {
      return std::find(sizes.begin(), sizes.end(), tensor.second) == sizes.end();
    });
    assert(tensors_.size() == sizes.size());
    for (const auto& [data, bytes] : tensors_) std::memset(data, kNaN, bytes);
  }
  // Page `block` of every tensor, each of num_blocks pages.
  void poison(std::size_t block, std::size_t num_blocks) {
    for (const auto& [data, bytes] : tensors_) {
      const std::size_t page = bytes / num_blocks;
      std::memset(static_cast<char*>(data) + block * page, kNaN, page);
    }
  }

  // Of the tensors, since the start.
  std::size_t bytes_zeroed() const { return bytes_zeroed_; }

  Buffer allocate_zeroed(std::size_t bytes, MemoryPurpose purpose) override {
    Buffer buffer = ForwardingDevice::allocate_zeroed(bytes, purpose);
    if (purpose == MemoryPurpose::kv_cache) tensors_.emplace_back(buffer.data(), bytes);
    return buffer;
  }
  void zero(void* dst, std::size_t bytes, StreamRef stream) override {
    for (const auto& [data, size] : tensors_) {
      const std::ptrdiff_t offset = static_cast<char*>(dst) - static_cast<char*>(data);
      if (offset >= 0 && static_cast<std::size_t>(offset) < size) bytes_zeroed_ += bytes;
    }
    ForwardingDevice::zero(dst, bytes, stream);
  }
  std::unique_ptr<Graph> capture(const std::function<void()>&) override { return nullptr; }

 private:
  static constexpr int kNaN = 0xff;  // of every byte: NaN in f32, bf16 and f16

  std::vector<std::pair<void*, std::size_t>> tensors_;
  std::size_t bytes_zeroed_ = 0;
};

}  // namespace quire::test
