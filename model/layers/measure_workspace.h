#pragma once
// What a step takes of its scratch memory is learnt by walking through it with operators that
// compute nothing and a workspace that holds nothing.

#include <functional>

#include "model/forward_context.h"

namespace quire {

// Peak bytes that `step` takes from its context's workspace with num_tokens tokens. Sizes that
// depend on the backend come from `ops`.
std::size_t measure_workspace(const OpsTraits& ops, StreamRef stream, int num_tokens,
                              int num_groups,
                              const std::function<void(const ForwardContext&)>& step);

// Stands for device memory that is never touched.
TensorView unbacked(DType dtype, std::initializer_list<std::int64_t> extents);

}  // namespace quire
