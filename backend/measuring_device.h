#pragma once
// A device without memory: what is allocated goes into the ledger, and nothing can be read or
// written. What start-up takes of a device is learnt by going through it on this one.

#include <functional>
#include <memory>

#include "backend/device.h"

namespace quire {

class MeasuringDevice final : public Device {
 public:
  // Stands for a device whose memory is the host's, or its own.
  explicit MeasuringDevice(bool is_host_memory) : is_host_memory_(is_host_memory) {}

  std::string name() const override { return "measuring"; }
  MemoryInfo memory() const override { return {}; }
  bool is_host_memory() const override { return is_host_memory_; }
  MemoryLedger& ledger() override { return ledger_; }
  Buffer allocate(std::size_t bytes, MemoryPurpose purpose) override {
    return {nowhere(bytes), ledger_, purpose, MemoryKind::device};
  }
  Buffer allocate_host(std::size_t bytes, MemoryPurpose purpose) override {
    return {nowhere(bytes), ledger_, purpose, MemoryKind::pinned};
  }

  StreamRef stream() override { return StreamRef::from_handle(nullptr); }
  StreamRef copy_stream() override { return stream(); }
  void copy(void*, const void*, std::size_t, StreamRef) override {}
  void zero(void*, std::size_t, StreamRef) override {}
  void synchronize(StreamRef) override {}
  std::unique_ptr<Event> create_event() override { return std::make_unique<NoEvent>(); }
  void wait(StreamRef, Event&) override {}
  std::unique_ptr<Graph> capture(const std::function<void()>&) override { return nullptr; }

 private:
  class NoEvent final : public Event {
   public:
    void record(StreamRef) override {}
    bool ready() const override { return true; }
    void wait() override {}
  };

  // Not null: null means an absent optional input.
  static Buffer nowhere(std::size_t bytes) {
    return {reinterpret_cast<void*>(std::uintptr_t{4096}), bytes, [](void*, std::size_t) {}};
  }

  MemoryLedger ledger_;
  const bool is_host_memory_;
};

}  // namespace quire
