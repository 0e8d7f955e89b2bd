#pragma once
// A host device that says its memory is its own: what an engine does for a GPU (packs that are
// filled while others are uploaded, passes queued before their counts are known, steps that
// overlap) runs with the CPU's operators. All of it at once: nothing is ever late. What must not be
// overwritten while it is: draft_overlap_test.cpp, on the emulated CUDA backend.

#include <functional>
#include <memory>

#include "tests/support/forwarding_device.h"

namespace quire::test {

class StagedDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  bool is_host_memory() const override { return false; }
  std::unique_ptr<Graph> capture(const std::function<void()>&) override { return nullptr; }
};

}  // namespace quire::test
