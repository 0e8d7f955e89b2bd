#pragma once
// A CUDA device that notes when each engine step begins and ends on the GPU, without a profiler: a
// step begins with the first copy of inputs to the device and ends with the event that follows the
// copy of its tokens to the host.

#include <memory>
#include <vector>

#include "cuda/runtime/handles.h"
#include "tests/support/forwarding_device.h"

namespace quire::perf {

struct StepTimes {
  double idle = 0;  // seconds between the end of a step and the beginning of the next
  double span = 0;  // seconds from the first step's beginning to the last one's end
  int steps = 0;
};

class TimedDevice final : public test::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  // Of the steps since the last call; waits for them.
  StepTimes take_times();

  Buffer allocate_host(std::size_t bytes, MemoryPurpose purpose) override;
  void copy(void* dst, const void* src, std::size_t bytes, StreamRef stream) override;
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

  std::vector<std::pair<const char*, std::size_t>> pinned_;
  std::vector<Step> steps_;
  bool in_step_ = false, tokens_copied_ = false, capturing_ = false;
};

}  // namespace quire::perf
