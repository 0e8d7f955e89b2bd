#pragma once
// The CPU, said to have memory of its own: everything goes through staging copies and overlapping
// steps, as on a GPU. It can also break.

#include <atomic>
#include <memory>
#include <utility>

#include "backend/device.h"
#include "base/error.h"

namespace quire::test {

class PretendDevice final : public Device {
 public:
  // Throws in the copy after `copies_left` more ones; null: never.
  PretendDevice(std::unique_ptr<Device> cpu, std::shared_ptr<std::atomic<int>> copies_left)
      : cpu_(std::move(cpu)), copies_left_(std::move(copies_left)) {}

  std::string name() const override { return "pretend"; }
  MemoryInfo memory() const override { return cpu_->memory(); }
  bool is_host_memory() const override { return false; }
  Buffer allocate(std::size_t bytes) override { return cpu_->allocate(bytes); }
  Buffer allocate_host(std::size_t bytes) override { return cpu_->allocate_host(bytes); }
  StreamRef stream() override { return cpu_->stream(); }
  StreamRef copy_stream() override { return cpu_->copy_stream(); }
  void copy(void* dst, const void* src, std::size_t bytes, StreamRef stream) override {
    if (copies_left_ && (*copies_left_)-- == 0) {
      throw Failure(ErrorCode::internal, "the device is lost");
    }
    cpu_->copy(dst, src, bytes, stream);
  }
  void zero(void* dst, std::size_t bytes, StreamRef stream) override {
    cpu_->zero(dst, bytes, stream);
  }
  void synchronize(StreamRef stream) override { cpu_->synchronize(stream); }
  std::unique_ptr<Event> create_event() override { return cpu_->create_event(); }
  void wait(StreamRef stream, Event& event) override { cpu_->wait(stream, event); }
  std::unique_ptr<Graph> capture(const std::function<void()>&) override { return nullptr; }

 private:
  std::unique_ptr<Device> cpu_;
  std::shared_ptr<std::atomic<int>> copies_left_;
};

}  // namespace quire::test
