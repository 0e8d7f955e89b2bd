#pragma once
// The arrays of one step side by side, so that one copy brings all of them to the device: the host
// adds them in turn, fills them and uploads. What is added in the same order with the same sizes
// lies at the same addresses. Where host and device share memory there is one copy; else the host
// fills several in turn, two if nothing else is said, because uploads may still be under way.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "backend/device.h"
#include "backend/dtype.h"
#include "base/error.h"

namespace quire {

class StagedPack {
 public:
  template <class T>
  struct Array {
    std::span<T> host;  // contents undefined
    TensorView device;  // [host.size()]
  };

  // Arrays of bytes_of<T>(n) each, sum up to capacity. The device's buffer begins with kept_bytes
  // that uploads leave alone.
  StagedPack(Device& device, MemoryPurpose purpose, std::size_t kept_bytes, std::size_t capacity,
             int num_turns = 2)
      : device_(device),
        kept_(align(kept_bytes)),
        capacity_(capacity),
        on_device_(device.allocate(kept_ + capacity, purpose)),
        on_host_(static_cast<std::size_t>(num_turns)) {
    if (device.is_host_memory()) return;
    for (Buffer& buffer : on_host_) buffer = device.allocate_host(capacity, purpose);
  }

  template <class T>
  static constexpr std::size_t bytes_of(std::size_t count) {
    return align(count * sizeof(T));
  }

  void begin() {
    used_ = uploaded_ = 0;
    turn_ = (turn_ + 1) % on_host_.size();
  }

  template <class T>
  Array<T> add(std::size_t count) {
    const std::size_t begin = used_;
    used_ += bytes_of<T>(count);
    if (used_ > capacity_) {
      throw Failure(ErrorCode::internal,
                    "a step's arrays take more than " + std::to_string(capacity_) + " bytes");
    }
    return {{reinterpret_cast<T*>(host() + begin), count},
            TensorView(base() + kept_ + begin, dtype_of<T>, {static_cast<std::int64_t>(count)})};
  }

  // What was added since the last upload.
  void upload(StreamRef stream) {
    if (!device_.is_host_memory() && used_ > uploaded_) {
      device_.copy(base() + kept_ + uploaded_, host() + uploaded_, used_ - uploaded_, stream);
    }
    uploaded_ = used_;
  }

  // All that was added since begin(): what another rank's pack of the same arrays is filled with.
  std::span<std::byte> added() const { return {host(), used_}; }

  // The device's buffer from its beginning, [count], and where in it an array is.
  template <class T>
  TensorView whole(std::size_t count) const {
    return TensorView(on_device_.data(), dtype_of<T>, {static_cast<std::int64_t>(count)});
  }
  template <class T>
  std::int32_t index_of(const Array<T>& array) const {
    return static_cast<std::int32_t>(static_cast<T*>(array.device.data()) -
                                     static_cast<T*>(on_device_.data()));
  }
  std::size_t bytes() const { return on_device_.bytes(); }

 private:
  static constexpr std::size_t align(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
  std::byte* base() const { return static_cast<std::byte*>(on_device_.data()); }
  std::byte* host() const {
    return device_.is_host_memory() ? base() + kept_
                                    : static_cast<std::byte*>(on_host_[turn_].data());
  }

  Device& device_;
  const std::size_t kept_;      // bytes
  const std::size_t capacity_;  // bytes
  Buffer on_device_;
  std::vector<Buffer> on_host_;
  std::size_t used_ = 0;
  std::size_t uploaded_ = 0;
  std::size_t turn_ = 0;
};

}  // namespace quire
