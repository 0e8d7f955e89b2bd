#pragma once
// Groups → the tensors of one worker's pool. Block b of a layer is page b of its tensor.

#include <cstdint>
#include <string>
#include <vector>

#include "engine/kv_plan/groups.h"

namespace quire {

// One allocation; block b of each layer in shared_by begins at b · (size / num_blocks).
struct KvTensor {
  std::size_t size = 0;  // bytes
  std::vector<std::string> shared_by;
};

// Bytes of one block id across all tensors of a worker: `groups` are its part of the `model`'s. 0:
// the worker has no layer that remembers anything.
std::size_t pool_bytes_per_block(const std::vector<KvGroup>& groups,
                                 const std::vector<KvGroup>& model);

std::vector<KvTensor> pool_tensors(const std::vector<KvGroup>& groups,
                                   const std::vector<KvGroup>& model, std::int64_t num_blocks);

}  // namespace quire
