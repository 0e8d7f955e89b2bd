#include "tests/perf/timed_ops.h"

#include <utility>

#include "tests/perf/cuda_probes.h"

namespace quire::perf {

using cuda::seconds_between;

namespace {

cudaStream_t native(StreamRef stream) { return static_cast<cudaStream_t>(stream.handle()); }

}  // namespace

void TimedOps::begin_step(double pause_seconds) {
  timing_ = true;
  pause_ = pause_seconds;
}

void TimedOps::begin_operator(const char* name, const TensorView* weight, StreamRef stream) {
  const double pause = std::exchange(pause_, 0.);
  if (pause > 0) launch_pause(pause, stream);
  std::string text = name;
  if (weight != nullptr)
    text += ", matrix of " + std::to_string(weight->extent(weight->rank() - 2)) + " by " +
            std::to_string(weight->extent(weight->rank() - 1));
  const Interval& interval = intervals_.emplace_back(
      Interval{std::move(text), cuda::create_event(true), cuda::create_event(true), pause > 0});
  CUDA_CHECK(cudaEventRecord(interval.begin.get(), native(stream)));
}

void TimedOps::end_operator(StreamRef stream) {
  CUDA_CHECK(cudaEventRecord(intervals_.back().end.get(), native(stream)));
}

TimedOps::Times TimedOps::end() {
  timing_ = false;
  Times times;
  for (std::size_t i = 0; i < intervals_.size(); ++i) {
    const Interval& interval = intervals_[i];
    CUDA_CHECK(cudaEventSynchronize(interval.end.get()));
    Sum& sum = times.operators[interval.name];
    sum.seconds += seconds_between(interval.begin, interval.end);
    ++sum.times;
    if (!interval.first) times.between += seconds_between(intervals_[i - 1].end, interval.begin);
  }
  intervals_.clear();
  return times;
}

}  // namespace quire::perf
