#include "engine/runner/kv_memory.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace quire {
namespace {

const KvSpec& spec_of(const KvGroup& group, std::size_t layer) {
  return group.per_layer_specs ? group.layer_specs[layer] : group.spec;
}

}  // namespace

KvMemory::KvMemory(Device& device, const KvPlan& plan) : device_(device), plan_(plan) {
  const WorkerKvPlan& worker = plan.workers.front();
  for (const KvTensor& tensor : worker.tensors) {
    tensors_.push_back(device.allocate_zeroed(tensor.size, MemoryPurpose::kv_cache));
  }
  if (bytes() != worker.total_bytes()) {
    throw Failure(ErrorCode::internal, "KV cache of " + std::to_string(bytes()) +
                                           " bytes allocated, " +
                                           std::to_string(worker.total_bytes()) + " planned");
  }
}

std::size_t KvMemory::bytes() const {
  std::size_t sum = 0;
  for (const Buffer& tensor : tensors_) sum += tensor.bytes();
  return sum;
}

std::vector<LayerCache> KvMemory::layers(std::span<const LayerKvSpec> specs) const {
  const WorkerKvPlan& worker = plan_.workers.front();
  std::vector<LayerCache> layers;
  for (const LayerKvSpec& wanted : specs) {
    LayerCache& layer = layers.emplace_back();
    for (std::size_t g = 0; g < worker.groups.size(); ++g) {
      const KvGroup& group = worker.groups[g];
      const auto found = std::ranges::find(group.layers, wanted.layer);
      if (found == group.layers.end()) continue;
      layer.spec = spec_of(group, static_cast<std::size_t>(found - group.layers.begin()));
      layer.group = static_cast<int>(g);
      layer.block_size = group.block_size;
      layer.kernel_block_size = group.kernel_block_size;
    }
    for (std::size_t t = 0; t < worker.tensors.size(); ++t) {
      const KvTensor& tensor = worker.tensors[t];
      if (std::ranges::find(tensor.shared_by, wanted.layer) == tensor.shared_by.end()) continue;
      layer.base = tensors_[t].data();
      layer.num_blocks = plan_.num_blocks;
      layer.page_bytes = tensor.size / static_cast<std::size_t>(plan_.num_blocks);
    }
    if (layer.base == nullptr || layer.block_size == 0) {
      throw Failure(ErrorCode::internal, "the KV plan has no memory for " + wanted.layer);
    }
  }
  return layers;
}

void KvMemory::zero_blocks(std::span<const BlockId> blocks, StreamRef stream) {
  for (std::size_t first = 0; first < blocks.size();) {
    std::size_t end = first + 1;
    while (end < blocks.size() && blocks[end] == blocks[end - 1] + 1) ++end;
    for (const Buffer& tensor : tensors_) {
      const std::size_t page = tensor.bytes() / static_cast<std::size_t>(plan_.num_blocks);
      auto* base = static_cast<std::byte*>(tensor.data());
      device_.zero(base + static_cast<std::size_t>(blocks[first]) * page, (end - first) * page,
                   stream);
    }
    first = end;
  }
}

}  // namespace quire
