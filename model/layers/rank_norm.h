#pragma once
// A root-mean-square norm over more of a row than one rank has.

#include <cstdint>
#include <vector>

#include "model/layers/linear.h"
#include "model/layers/norm.h"

namespace quire {

// out [T, columns], may be x, of the model's dtype = the rank's part of the norm over what so many
// neighbouring ranks have of each row; x [T, columns], in any dtype. norm's weight is for those
// parts side by side.
void norm_over_ranks(const RmsNorm& norm, TensorView out, TensorView x, const Shard& shard,
                     int neighbours, const ForwardContext& context);

// The elements of a vector of n that is divided into shares of which `copies` ranks have the same,
// as all ranks' shares side by side.
std::vector<std::int64_t> side_by_side(const Shard& shard, std::int64_t n, int copies);

}  // namespace quire
