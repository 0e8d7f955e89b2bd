#pragma once
// How blocks of 16 tokens and recurrent states share the regions of a cache, as vLLM lays hybrid
// models out: a block that is named is as many of the kernel's as a state fills. Pure.

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/kv_transfer/blocks/regions.h"
#include "engine/kv_transfer/content/geometry.h"

namespace quire {

struct BlockShape {
  std::vector<std::int64_t> region_bytes;  // of a kernel's block
  std::int64_t largest = 0;                // of a layer's block or state
  int ratio = 1;                           // kernel's blocks of one that is named

  std::int64_t kernel_bytes() const;  // of a block over all regions
};

// Throws Failure where layers with heads that share a region have blocks of other sizes.
BlockShape block_shape(const KvGeometry& geometry, const BlockRegions& regions, int block_size);

// Null: there are none.
const KvStateGeometry* first_state(const KvGeometry& geometry);

// Whether a block of that group holds a state, and no tokens.
bool holds_state(const KvGeometry& geometry, const BlockRegions& regions, std::size_t group);

// Throws Failure for layers that planes with vLLM's blocks do not carry, naming the configuration's
// field. `has_one_size`: of a model's states one size is told.
void check_block_geometry(std::string_view plane, const KvGeometry& geometry, bool has_one_size);

}  // namespace quire
