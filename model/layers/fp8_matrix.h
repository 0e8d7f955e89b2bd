#pragma once
// Published fp8 matrices as one Weight: of a fused product, or of the experts of a layer.

#include <optional>
#include <string>
#include <vector>

#include "model/weights.h"

namespace quire {

// The scales of the picked rows (all where `pick` is empty) of a published matrix of this shape,
// where it is fp8 and can stay so. Nothing otherwise: it is to be loaded as plain numbers.
std::optional<Fp8Scales> fp8_scales(Weights& weights, const std::string& name, const Shape& shape,
                                    const std::vector<std::int64_t>& pick = {});

// The sources one after another as `shape`, [.., rows, columns], with the scales of each.
Weight load_fp8(Weights& weights, const std::vector<Source>& sources, const Shape& shape,
                const std::vector<Fp8Scales>& scales);

}  // namespace quire
