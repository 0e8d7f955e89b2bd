#pragma once
// The KV cache's memory: the tensors that a plan lists, allocated exactly as it says.

#include <cstddef>
#include <span>
#include <vector>

#include "backend/device.h"
#include "base/ids.h"
#include "engine/kv_plan/plan.h"
#include "model/model.h"

namespace quire {

class KvMemory {
 public:
  // Zeroed. Throws Failure when the plan's numbers contradict each other.
  KvMemory(Device& device, const KvPlan& plan);

  // One per layer, in the order of Model::kv_specs().
  std::vector<LayerCache> layers(std::span<const LayerKvSpec> specs) const;

  std::size_t bytes() const;
  // Zeroes these blocks in all tensors, queued on the stream.
  void zero_blocks(std::span<const BlockId> blocks, StreamRef stream);

 private:
  Device& device_;
  const KvPlan& plan_;
  std::vector<Buffer> tensors_;  // as plan_.workers[0].tensors
};

}  // namespace quire
