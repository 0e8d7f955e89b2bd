#pragma once
// Memory, streams and order of execution, as the engine and the models see them. Types that own
// memory release it; StreamRef and TensorView only refer to it. Any call may throw Failure; memory
// is allocated at start-up, never in a step.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "backend/memory.h"
#include "backend/tensor.h"

namespace quire {

// A queue of work on a device, in order. On the CPU backend, work is done when the call returns.
class StreamRef {
 public:
  StreamRef(int) = delete;
  StreamRef(std::nullptr_t) = delete;
  static StreamRef from_handle(void* handle) { return StreamRef(handle); }
  void* handle() const { return handle_; }

 private:
  explicit StreamRef(void* handle) : handle_(handle) {}
  void* handle_;
};

struct MemoryInfo {
  std::size_t total = 0;      // bytes
  std::size_t available = 0;  // bytes that an allocation could get now
};

// Bytes on a device (or pinned on the host). Move-only; freed before its device is destroyed.
class Buffer {
 public:
  using Release = void (*)(void* data, std::size_t bytes);
  Buffer() = default;
  Buffer(void* data, std::size_t bytes, Release release)
      : data_(data), bytes_(bytes), release_(release) {}
  // Counted in the ledger for as long as it lives.
  Buffer(Buffer&& memory, MemoryLedger& ledger, MemoryPurpose purpose, MemoryKind kind)
      : Buffer(std::move(memory)) {
    ledger.add(purpose, kind, bytes_);
    ledger_ = &ledger;
    purpose_ = purpose;
    kind_ = kind;
  }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  ~Buffer() {
    if (ledger_ != nullptr) ledger_->remove(purpose_, kind_, bytes_);
    if (data_ != nullptr) release_(data_, bytes_);
  }
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
    std::swap(ledger_, other.ledger_);
    std::swap(purpose_, other.purpose_);
    std::swap(kind_, other.kind_);
  }
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Release release_ = nullptr;
  MemoryLedger* ledger_ = nullptr;
  MemoryPurpose purpose_ = MemoryPurpose::other;
  MemoryKind kind_ = MemoryKind::device;
};

// A recorded sequence of launches. replay() queues it again with the memory contents of that
// moment.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void replay(StreamRef stream) = 0;
};

// A point in a stream's work.
class Event {
 public:
  virtual ~Event() = default;
  virtual void record(StreamRef stream) = 0;
  virtual bool ready() const = 0;  // is all work before record() done?
  virtual void wait() = 0;         // the calling thread waits for it
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // "cpu", "cuda:0"
  virtual MemoryInfo memory() const = 0;
  // May the host read and write Buffers from allocate() directly?
  virtual bool is_host_memory() const = 0;

  // 64-byte aligned or better, contents undefined.
  virtual Buffer allocate(std::size_t bytes, MemoryPurpose purpose = MemoryPurpose::other) = 0;
  // The same, zeroed, and backed by real memory when the call returns.
  virtual Buffer allocate_zeroed(std::size_t bytes, MemoryPurpose purpose = MemoryPurpose::other) {
    Buffer buffer = allocate(bytes, purpose);
    zero(buffer.data(), bytes, stream());
    synchronize(stream());
    return buffer;
  }
  // Host memory that copies asynchronously (pinned).
  virtual Buffer allocate_host(std::size_t bytes, MemoryPurpose purpose = MemoryPurpose::other) = 0;
  virtual MemoryLedger& ledger() = 0;  // of all these

  virtual StreamRef stream() = 0;       // the compute stream
  virtual StreamRef copy_stream() = 0;  // for copies beside it; may be the same
  virtual void copy(void* dst, const void* src, std::size_t bytes,
                    StreamRef stream) = 0;  // any direction
  virtual void zero(void* dst, std::size_t bytes, StreamRef stream) = 0;
  virtual void synchronize(StreamRef stream) = 0;
  virtual std::unique_ptr<Event> create_event() = 0;
  virtual void wait(StreamRef stream, Event& event) = 0;  // work queued from now on waits for event

  // Records what body queues on stream() instead of running it; nullptr where the device has no
  // graphs (body not run). The device memory that the graph takes is in the ledger.
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& body) = 0;
};

}  // namespace quire
