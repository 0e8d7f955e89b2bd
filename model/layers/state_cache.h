#pragma once
// Where a recurrent layer's states lie in its pages: one view per state of its spec.

#include "model/model.h"

namespace quire {

// [blocks, …] over state `index` of every page; blocks are a page apart.
inline TensorView state_view(const LayerCache& cache, std::size_t index) {
  std::size_t offset = 0;
  for (std::size_t i = 0; i < index; ++i) {
    std::size_t bytes = size_of(cache.spec.states[i].dtype);
    for (const std::int64_t n : cache.spec.states[i].shape) bytes *= static_cast<std::size_t>(n);
    offset += bytes;
  }
  const StateTensor& state = cache.spec.states[index];
  void* data = static_cast<std::byte*>(cache.base) + offset;
  const auto page = static_cast<std::int64_t>(cache.page_bytes / size_of(state.dtype));
  const auto& s = state.shape;
  if (s.size() == 2) {
    return TensorView(data, state.dtype, {cache.num_blocks, s[0], s[1]})
        .with_strides({page, s[1], 1});
  }
  return TensorView(data, state.dtype, {cache.num_blocks, s[0], s[1], s[2]})
      .with_strides({page, s[1] * s[2], s[2], 1});
}

}  // namespace quire
