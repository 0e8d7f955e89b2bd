// Streams, events, captures and graphs. When work runs is the queues' business.

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "core.h"
#include "memory.h"
#include "queues.h"
#include "runtime.h"

using emulation::Queue, emulation::Work;

struct CUgraph_st {
  std::vector<Work> work;
};
struct CUgraphExec_st {
  std::vector<Work> work;
  std::size_t bytes;  // of the device
};

namespace {

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
  std::shared_ptr<Queue> queue = emulation::make_queue();
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
std::vector<std::shared_ptr<Capture>> captures;

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

void drain(cudaStream_t stream) { drain_queue(stream->queue, stream->queue->queued); }

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
  make_progress(stream->queue);
  return alive();
}

}  // namespace emulation

using namespace emulation;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  LOCK;
  streams.insert(*stream = new CUstream_st);
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
    if (!is_capturing(stream)) put(stream, [time = event->time] { *time = time_spent(); });
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
