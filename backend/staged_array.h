#pragma once
// An array that the host writes anew each step and the device reads at one address. Where both
// share memory there is one copy of it; else the host writes two in turn, because the copy of the
// step before may still be under way.

#include <algorithm>
#include <cstddef>
#include <span>

#include "backend/device.h"
#include "backend/dtype.h"
#include "backend/tensor.h"

namespace quire {

template <class T>
class StagedArray {
 public:
  StagedArray(Device& device, std::size_t capacity) : device_(&device) { reserve(capacity); }

  std::size_t capacity() const { return capacity_; }

  // Grows; contents are lost and so is the address. For arrays that are rarely used and then large.
  void reserve(std::size_t capacity) {
    if (capacity <= capacity_) return;
    capacity_ = capacity;
    on_device_ = device_->allocate(capacity * sizeof(T));
    if (device_->is_host_memory()) return;
    for (Buffer& buffer : on_host_) buffer = device_->allocate_host(capacity * sizeof(T));
  }

  // The buffer to write for the next upload; contents undefined. Once per step.
  std::span<T> write() {
    if (device_->is_host_memory()) return {static_cast<T*>(on_device_.data()), capacity_};
    turn_ = 1 - turn_;
    return {static_cast<T*>(on_host_[turn_].data()), capacity_};
  }

  // The first elements of what was written, to the device; the view is [count].
  TensorView upload(std::size_t count, StreamRef stream) {
    if (!device_->is_host_memory() && count > 0)
      device_->copy(on_device_.data(), on_host_[turn_].data(), count * sizeof(T), stream);
    return view(count);
  }

  TensorView view(std::size_t count) const {
    return TensorView(on_device_.data(), dtype_of<T>, {static_cast<std::int64_t>(count)});
  }

 private:
  Device* device_;
  std::size_t capacity_ = 0;
  Buffer on_device_;
  Buffer on_host_[2];
  int turn_ = 0;
};

}  // namespace quire
