#pragma once
// Another device, as it is: a test's own device changes what it wants to be otherwise.

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "backend/device.h"

namespace quire::test {

class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  std::string name() const override { return device_->name(); }
  MemoryInfo memory() const override { return device_->memory(); }
  bool is_host_memory() const override { return device_->is_host_memory(); }
  MemoryLedger& ledger() override { return device_->ledger(); }
  Buffer allocate(std::size_t bytes, MemoryPurpose purpose) override {
    return device_->allocate(bytes, purpose);
  }
  Buffer allocate_zeroed(std::size_t bytes, MemoryPurpose purpose) override {
    return device_->allocate_zeroed(bytes, purpose);
  }
  Buffer allocate_host(std::size_t bytes, MemoryPurpose purpose) override {
    return device_->allocate_host(bytes, purpose);
  }
  StreamRef stream() override { return device_->stream(); }
  StreamRef copy_stream() override { return device_->copy_stream(); }
  void copy(void* dst, const void* src, std::size_t bytes, StreamRef stream) override {
    device_->copy(dst, src, bytes, stream);
  }
  void zero(void* dst, std::size_t bytes, StreamRef stream) override {
    device_->zero(dst, bytes, stream);
  }
  void synchronize(StreamRef stream) override { device_->synchronize(stream); }
  std::unique_ptr<Event> create_event() override { return device_->create_event(); }
  void wait(StreamRef stream, Event& event) override { device_->wait(stream, event); }
  std::unique_ptr<Graph> capture(const std::function<void()>& body) override {
    return device_->capture(body);
  }

 private:
  std::unique_ptr<Device> device_;
};

}  // namespace quire::test
