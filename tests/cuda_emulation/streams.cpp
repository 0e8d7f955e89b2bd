// Streams, events, captures and graphs. Streams are lazy: queued work runs only when something
// synchronises with it, as late as CUDA allows, so that host code which forgets to wait sees stale
// data. QUIRE_EMULATION_STREAMS=now runs work at once, =random lets every call bring all streams
// some steps forward, in any order that their events allow. Where devices wait for one another
// (nccl.cpp) work also runs by itself.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core.h"
#include "memory.h"
#include "runtime.h"

using emulation::Work;

struct CUgraph_st {
  std::vector<Work> work;
};
struct CUgraphExec_st {
  std::vector<Work> work;
  std::size_t bytes;  // of the device
};

namespace {

struct Queued {
  Work work;
  std::function<void()> going_on = {};  // of a kernel that has begun
};
struct Queue {
  std::deque<Queued> work;
  std::uint64_t queued = 0, done = 0;
  bool busy = false;  // its first work runs, or waits for another queue's
};
struct Capture {
  std::unique_ptr<CUgraph_st> graph = std::make_unique<CUgraph_st>();
  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  cudaError_t error = cudaSuccess;  // why it cannot become a graph
  // By stream: work captured from it, and how much of that the origin has waited for.
  struct Part {
    std::uint64_t captured = 0, joined = 0;
  };
  std::map<cudaStream_t, Part> parts;
};

}  // namespace

// What it has queued outlives it.
struct CUstream_st {
  std::shared_ptr<Queue> queue = std::make_shared<Queue>();
  std::shared_ptr<Capture> capture;
};
struct CUevent_st {
  std::shared_ptr<Queue> queue;  // null: not recorded
  std::uint64_t at = 0;
  std::weak_ptr<Capture> capture;  // the record became part of it
  cudaStream_t captured_from = nullptr;
  std::shared_ptr<double> time;  // microseconds, when it was reached; null: not measured
};

namespace emulation {
namespace {

std::set<cudaStream_t> streams;
std::set<cudaEvent_t> events;
std::set<cudaGraph_t> graphs;
std::set<cudaGraphExec_t> executables;
std::vector<std::shared_ptr<Queue>> queues;  // with work, or of a stream
std::vector<std::shared_ptr<Capture>> captures;
double microseconds = 0;  // that work took so far

enum class Mode { late, now, random };
Mode mode() {
  static const Mode value = [] {
    const char* text = std::getenv("QUIRE_EMULATION_STREAMS");
    const std::string_view name = text != nullptr ? text : "late";
    return name == "now" ? Mode::now : name == "random" ? Mode::random : Mode::late;
  }();
  return value;
}
std::uint64_t next_choice() {  // xorshift64
  static std::uint64_t x = config().seed * 0x9e3779b97f4a7c15u | 1;
  x ^= x << 13;
  x ^= x >> 7;
  return x ^= x << 17;
}

// Kernels behind the first that may begin before it has ended do so before it has begun: all that
// they read and write before they wait is then visibly too early. CUDA lets so many begin as have
// room, if each gives its place away before it waits itself. Of the kernels until `until` alone,
// as whoever wants these finishes them.
void begin_ahead(Queue& queue, std::uint64_t until) {
  constexpr std::size_t kMost = 16;
  for (std::size_t i = 1; i < std::min(kMost, queue.work.size()) && queue.done + i < until; ++i) {
    Queued& queued = queue.work[i];
    if (!queue.work[i - 1].work.is_kernel || !queued.work.begin) return;
    if (!queued.going_on) queued.going_on = queued.work.begin();
  }
}
void run_next(Queue& queue, std::uint64_t until) {
  queue.busy = true;
  try {
    begin_ahead(queue, until);
    const Queued next = std::move(queue.work.front());
    queue.work.pop_front();
    next.going_on ? next.going_on() : next.work.run();
  } catch (const std::exception& error) {
    fault(error.what());
  }
  queue.busy = false;
  ++queue.done;
}
void run_any() {
  std::vector<std::shared_ptr<Queue>> waiting;
  for (const auto& queue : queues) {
    if (!queue->busy && !queue->work.empty()) waiting.push_back(queue);
  }
  if (waiting.empty()) return;
  Queue& queue = *waiting[next_choice() % waiting.size()];
  const std::uint64_t until = queue.done + 1 + next_choice() % 4;
  do {
    run_next(queue, until);
  } while (!queue.work.empty() && queue.work.front().going_on);
}
void drain_queue(const std::shared_ptr<Queue>& queue, std::uint64_t until) {
  const std::shared_ptr<Queue> alive = queue;
  const DeviceAccess access;
  while (!is_lost() && alive->done < until && !alive->work.empty()) {
    if (mode() == Mode::random) {
      run_any();
    } else {
      run_next(*alive, until);
    }
  }
}
void progress() {
  if (mode() != Mode::random || is_lost()) return;
  const DeviceAccess access;
  for (std::uint64_t steps = next_choice() % 3; steps > 0 && !is_lost(); --steps) run_any();
}

// With the lock of runtime_mutex(); both never end, as a thread may still wait at exit.
std::condition_variable_any& has_work() {
  static auto* condition = new std::condition_variable_any;
  return *condition;
}

void append(Queue& queue, Work work) {
  queue.work.push_back({std::move(work)});
  ++queue.queued;
  has_work().notify_one();
}

// Never gives up; the host gets its turn between two works.
void run_forever() {
  std::unique_lock lock(runtime_mutex());
  while (!is_lost()) {
    const auto next = std::ranges::find_if(
        queues, [](const auto& queue) { return !queue->busy && !queue->work.empty(); });
    if (next == queues.end()) {
      has_work().wait(lock);
      continue;
    }
    try {
      drain_queue(*next, (*next)->done + 1);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "emulated device: %s\n", error.what());
    }
    lock.unlock();
    lock.lock();
  }
}

template <class Handle>
bool destroy(std::set<Handle>& all, Handle handle) {
  if (all.erase(handle) == 0) return false;
  delete handle;
  return true;
}

void join(Capture& capture, cudaStream_t waiter, const CUevent_st& event) {
  if (waiter == capture.origin) {
    auto& part = capture.parts[event.captured_from];
    part.joined = std::max(part.joined, event.at);
  } else {
    capture.parts[waiter];
  }
}

cudaError_t wait_for_captured(cudaStream_t stream, const CUevent_st& event) {
  const std::shared_ptr<Capture> capture = event.capture.lock();
  if (capture == nullptr) return failed(cudaErrorCapturedEvent);
  if (stream->capture != nullptr && stream->capture != capture)
    return capture->error = failed(cudaErrorStreamCaptureMerge);
  stream->capture = capture;
  join(*capture, stream, event);
  return cudaSuccess;
}

}  // namespace

void run_by_itself() {
  static std::once_flag once;
  std::call_once(once, [] { std::thread(run_forever).detach(); });
}

bool is_capturing(cudaStream_t stream) { return stream != nullptr && stream->capture != nullptr; }

cudaError_t unsafe_call() {
  for (const auto& capture : captures) {
    const bool mine = capture->thread == std::this_thread::get_id();
    if (capture->mode == cudaStreamCaptureModeRelaxed ||
        (capture->mode == cudaStreamCaptureModeThreadLocal && !mine))
      continue;
    capture->error = cudaErrorStreamCaptureInvalidated;
    return failed(cudaErrorStreamCaptureUnsupported);
  }
  return cudaSuccess;
}

void spend(double time) { microseconds += time; }

void drain(cudaStream_t stream) { drain_queue(stream->queue, stream->queue->queued); }
void drain_all() {
  for (const auto& queue : std::vector(queues)) drain_queue(queue, queue->queued);
  std::erase_if(queues, [](const auto& queue) { return queue.use_count() == 1; });
}

cudaError_t put(cudaStream_t stream, Work work) {
  if (is_lost()) return alive();
  if (stream == nullptr) {  // the legacy default stream waits for all others
    if (const cudaError_t error = unsafe_call(); error != cudaSuccess) {
      return failed(cudaErrorStreamCaptureImplicit);
    }
    drain_all();
    const DeviceAccess access;
    work.run();
    return cudaSuccess;
  }
  if (!streams.contains(stream)) return failed(cudaErrorInvalidResourceHandle);
  if (Capture* capture = stream->capture.get()) {
    capture->graph->work.push_back(std::move(work));
    ++capture->parts[stream].captured;
    return cudaSuccess;
  }
  append(*stream->queue, std::move(work));
  if (mode() == Mode::now) drain(stream);
  progress();
  return alive();
}

}  // namespace emulation

using namespace emulation;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  LOCK;
  streams.insert(*stream = new CUstream_st);
  queues.push_back((*stream)->queue);
  return alive();
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  LOCK;
  if (is_capturing(stream)) return failed(cudaErrorStreamCaptureUnsupported);
  return destroy(streams, stream) ? alive() : failed(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  LOCK;
  SYNCHRONISES;
  if (const cudaError_t error = unsafe_call(); error != cudaSuccess) return error;
  if (stream == nullptr) return drain_all(), alive();
  if (!streams.contains(stream)) return failed(cudaErrorInvalidResourceHandle);
  drain(stream);
  return alive();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  LOCK;
  SYNCHRONISES;
  if (!streams.contains(stream) || !events.contains(event))
    return failed(cudaErrorInvalidResourceHandle);
  if (event->captured_from != nullptr) return wait_for_captured(stream, *event);
  if (event->queue == nullptr) return alive();
  if (is_capturing(stream)) return stream->capture->error = failed(cudaErrorStreamCaptureIsolation);
  return put(stream, [queue = event->queue, at = event->at] { drain_queue(queue, at); });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  LOCK;
  if (stream == nullptr || is_capturing(stream)) return failed(cudaErrorStreamCaptureUnsupported);
  stream->capture = captures.emplace_back(std::make_shared<Capture>());
  stream->capture->origin = stream;
  stream->capture->mode = mode;
  stream->capture->thread = std::this_thread::get_id();
  return alive();
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  LOCK;
  *status = is_capturing(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return alive();
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  LOCK;
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return failed(cudaErrorIllegalState);
  if (capture->origin != stream) return failed(cudaErrorStreamCaptureUnmatched);
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id())
    return failed(cudaErrorStreamCaptureWrongThread);
  for (const auto& [other, part] : capture->parts) {
    other->capture.reset();
    if (other != stream && part.joined < part.captured && capture->error == cudaSuccess)
      capture->error = cudaErrorStreamCaptureUnjoined;
  }
  stream->capture.reset();
  std::erase(captures, capture);
  if (capture->error != cudaSuccess) return failed(capture->error);
  graphs.insert(*graph = capture->graph.release());
  return alive();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  LOCK;
  events.insert(*event = new CUevent_st);
  if ((flags & cudaEventDisableTiming) == 0) (*event)->time = std::make_shared<double>();
  return alive();
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  LOCK;
  return destroy(events, event) ? alive() : failed(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  LOCK;
  SYNCHRONISES;
  if (!events.contains(event) || (stream != nullptr && !streams.contains(stream)))
    return failed(cudaErrorInvalidResourceHandle);
  const bool is_timed = event->time != nullptr;
  *event = {};
  if (is_timed) {
    event->time = std::make_shared<double>();
    if (!is_capturing(stream)) put(stream, [time = event->time] { *time = microseconds; });
  }
  if (is_capturing(stream)) {
    event->capture = stream->capture;
    event->captured_from = stream;
    event->at = stream->capture->parts[stream].captured;
  } else if (stream != nullptr) {
    event->queue = stream->queue;
    event->at = stream->queue->queued;
  }
  return alive();
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  LOCK;
  SYNCHRONISES;
  if (!events.contains(event)) return failed(cudaErrorInvalidResourceHandle);
  if (event->captured_from != nullptr) return failed(cudaErrorCapturedEvent);
  if (const cudaError_t error = unsafe_call(); error != cudaSuccess) return error;
  if (event->queue != nullptr) drain_queue(event->queue, event->at);
  return alive();
}
// Asking makes a little progress, as time does on a device.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  LOCK;
  if (is_lost()) return alive();
  if (!events.contains(event)) return failed(cudaErrorInvalidResourceHandle);
  if (event->captured_from != nullptr) return failed(cudaErrorCapturedEvent);
  if (const cudaError_t error = unsafe_call(); error != cudaSuccess) return error;
  const std::shared_ptr<Queue> queue = event->queue;
  if (queue == nullptr || queue->done >= event->at) return cudaSuccess;
  drain_queue(queue, queue->done + 1);
  return queue->done >= event->at ? alive() : failed(cudaErrorNotReady);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  LOCK;
  if (!events.contains(begin) || !events.contains(end) || begin->time == nullptr ||
      end->time == nullptr)
    return failed(cudaErrorInvalidResourceHandle);
  return *milliseconds = static_cast<float>((*end->time - *begin->time) * 1e-3), cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  LOCK;
  if (!graphs.contains(graph)) return failed(cudaErrorInvalidValue);
  const std::size_t bytes = graph->work.size() << 10;
  if (const cudaError_t error = take_device(bytes); error != cudaSuccess) return error;
  executables.insert(*executable = new CUgraphExec_st{graph->work, bytes});
  return alive();
}
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t) {
  LOCK;
  return executables.contains(executable) ? alive() : failed(cudaErrorInvalidValue);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  LOCK;
  if (!executables.contains(executable)) return failed(cudaErrorInvalidValue);
  if (is_capturing(stream)) return failed(cudaErrorStreamCaptureUnsupported);
  for (const Work& work : executable->work) put(stream, work);
  return alive();
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  LOCK;
  if (!executables.contains(executable)) return failed(cudaErrorInvalidValue);
  give_device(executable->bytes);
  destroy(executables, executable);
  return alive();
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  LOCK;
  return destroy(graphs, graph) ? alive() : failed(cudaErrorInvalidValue);
}

}  // extern "C"
