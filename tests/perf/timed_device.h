#pragma once
// A CUDA device that notes when each engine step begins and ends on the GPU, without a profiler: a
// step begins with the first copy of inputs to the device and ends with the event that follows the
// copy of its tokens to the host.

#include <memory>
#include <vector>

#include "backend/device.h"
#include "cuda/runtime/handles.h"

namespace quire::perf {

struct StepTimes {
  double idle = 0;  // seconds between the end of a step and the beginning of the next
  double span = 0;  // seconds from the first step's beginning to the last one's end
  int steps = 0;
};

class TimedDevice final : public Device {
 public:
  explicit TimedDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  // Of the steps since the last call; waits for them.
  StepTimes take_times();

  std::string name() const override { return device_->name(); }
  MemoryInfo memory() const override { return device_->memory(); }
  bool is_host_memory() const override { return device_->is_host_memory(); }
  Buffer allocate(std::size_t bytes) override { return device_->allocate(bytes); }
  Buffer allocate_zeroed(std::size_t bytes) override { return device_->allocate_zeroed(bytes); }
  Buffer allocate_host(std::size_t bytes) override;
  StreamRef stream() override { return device_->stream(); }
  StreamRef copy_stream() override { return device_->copy_stream(); }
  void copy(void* dst, const void* src, std::size_t bytes, StreamRef stream) override;
  void zero(void* dst, std::size_t bytes, StreamRef stream) override {
    device_->zero(dst, bytes, stream);
  }
  void synchronize(StreamRef stream) override { device_->synchronize(stream); }
  std::unique_ptr<Event> create_event() override;
  void wait(StreamRef stream, Event& event) override;
  std::unique_ptr<Graph> capture(const std::function<void()>& body) override;

 private:
  class TimedEvent;
  struct Step {
    cuda::EventHandle begin, end;
  };
  bool on_host(const void* address) const;
  void step_begins();
  void step_ends();

  std::unique_ptr<Device> device_;
  std::vector<std::pair<const char*, std::size_t>> pinned_;
  std::vector<Step> steps_;
  bool in_step_ = false, tokens_copied_ = false, capturing_ = false;
};

}  // namespace quire::perf
