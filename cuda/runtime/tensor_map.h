#pragma once
// Maps of tensors for the tensor memory accelerator (cuda/device/tma.cuh). The driver makes them,
// which is asked for at run time: programs do not link it.

#include <cuda.h>

#include <initializer_list>
#include <string>

#include "backend/tensor.h"

namespace quire::cuda {

// Why the driver makes no maps, in one sentence; empty when it does. Asked once.
const std::string& tensor_maps_unavailable();

// Whether a map can say where the tensor is.
bool fits_tensor_map(const TensorView& tensor);
// A box has so much of each dimension, in the tensor's order; of the last one 128 bytes: rows of
// that width, one after the other, swizzled as in cuda/device/warpgroup.cuh. Coordinates of
// load_box begin with the last dimension. Throws Failure.
CUtensorMap tensor_map(const TensorView& tensor, std::initializer_list<int> box);

}  // namespace quire::cuda
