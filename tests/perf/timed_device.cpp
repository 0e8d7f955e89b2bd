#include "tests/perf/timed_device.h"

#include <algorithm>

namespace quire::perf {

using cuda::seconds_between;

class TimedDevice::TimedEvent final : public Event {
 public:
  TimedEvent(TimedDevice& device, std::unique_ptr<Event> event)
      : device_(device), event_(std::move(event)) {}
  void record(StreamRef stream) override {
    event_->record(stream);
    device_.step_ends();
  }
  bool ready() const override { return event_->ready(); }
  void wait() override { event_->wait(); }
  Event& inner() { return *event_; }

 private:
  TimedDevice& device_;
  std::unique_ptr<Event> event_;
};

Buffer TimedDevice::allocate_host(std::size_t bytes, MemoryPurpose purpose) {
  Buffer buffer = ForwardingDevice::allocate_host(bytes, purpose);
  pinned_.emplace_back(static_cast<const char*>(buffer.data()), bytes);
  return buffer;
}

bool TimedDevice::on_host(const void* address) const {
  const auto* at = static_cast<const char*>(address);
  return std::any_of(pinned_.begin(), pinned_.end(), [&](const auto& range) {
    return range.first <= at && at < range.first + range.second;
  });
}

void TimedDevice::copy(void* dst, const void* src, std::size_t bytes, StreamRef stream) {
  const bool to_host = on_host(dst);
  if (!to_host) step_begins();
  ForwardingDevice::copy(dst, src, bytes, stream);
  if (to_host && in_step_) tokens_copied_ = true;
}

void TimedDevice::step_begins() {
  if (in_step_ || capturing_) return;
  in_step_ = true;
  Step& step = steps_.emplace_back(Step{cuda::create_event(true), cuda::create_event(true)});
  CUDA_CHECK(cudaEventRecord(step.begin.get(), static_cast<cudaStream_t>(stream().handle())));
}

void TimedDevice::step_ends() {
  if (!tokens_copied_ || capturing_) return;
  in_step_ = tokens_copied_ = false;
  CUDA_CHECK(
      cudaEventRecord(steps_.back().end.get(), static_cast<cudaStream_t>(stream().handle())));
}

std::unique_ptr<Event> TimedDevice::create_event() {
  return std::make_unique<TimedEvent>(*this, ForwardingDevice::create_event());
}

void TimedDevice::wait(StreamRef stream, Event& event) {
  ForwardingDevice::wait(stream, static_cast<TimedEvent&>(event).inner());
}

std::unique_ptr<Graph> TimedDevice::capture(const std::function<void()>& body) {
  capturing_ = true;
  auto graph = ForwardingDevice::capture(body);
  capturing_ = false;
  return graph;
}

StepTimes TimedDevice::take_times() {
  synchronize(stream());
  if (in_step_) steps_.pop_back();  // has no end
  in_step_ = tokens_copied_ = false;
  StepTimes times;
  times.steps = static_cast<int>(steps_.size());
  for (std::size_t i = 1; i < steps_.size(); ++i)
    times.idle += seconds_between(steps_[i - 1].end, steps_[i].begin);
  if (!steps_.empty()) times.span = seconds_between(steps_.front().begin, steps_.back().end);
  steps_.clear();
  return times;
}

}  // namespace quire::perf
