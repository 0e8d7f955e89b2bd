#pragma once
// Weights for --load-format dummy: no file is read, and the same seed gives the same numbers.

#include <cstddef>
#include <cstdint>

#include "backend/dtype.h"
#include "model/weights.h"

namespace quire {

// Uniform values of a size that keeps activations near one; a long tensor repeats a short pattern,
// because benchmarks wait for this. `out` [delivered(source)] of `dtype`.
void fill_random(const Source& source, std::byte* out, DType dtype, std::uint64_t seed);

}  // namespace quire
