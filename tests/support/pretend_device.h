#pragma once
// The CPU, said to have memory of its own: everything goes through staging copies and overlapping
// steps, as on a GPU. It can also break.

#include <atomic>
#include <memory>
#include <utility>

#include "base/error.h"
#include "tests/support/forwarding_device.h"

namespace quire::test {

class PretendDevice final : public ForwardingDevice {
 public:
  // Throws in the copy after `copies_left` more ones; null: never.
  PretendDevice(std::unique_ptr<Device> cpu, std::shared_ptr<std::atomic<int>> copies_left)
      : ForwardingDevice(std::move(cpu)), copies_left_(std::move(copies_left)) {}

  std::string name() const override { return "pretend"; }
  bool is_host_memory() const override { return false; }
  Buffer allocate_zeroed(std::size_t bytes, MemoryPurpose purpose) override {
    return Device::allocate_zeroed(bytes, purpose);
  }
  void copy(void* dst, const void* src, std::size_t bytes, StreamRef stream) override {
    if (copies_left_ && (*copies_left_)-- == 0) {
      throw Failure(ErrorCode::internal, "the device is lost");
    }
    ForwardingDevice::copy(dst, src, bytes, stream);
  }
  std::unique_ptr<Graph> capture(const std::function<void()>&) override { return nullptr; }

 private:
  std::shared_ptr<std::atomic<int>> copies_left_;
};

}  // namespace quire::test
