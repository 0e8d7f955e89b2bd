// Maps of tensors for the tensor memory accelerator, and what the driver refuses of them: the
// requirements of cuTensorMapEncodeTiled in NVIDIA's documentation of the driver API.

#include "tensor_map.h"

#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "memory.h"
#include "runtime.h"

namespace emulation {
namespace {

int bytes_of(CUtensorMapDataType type) {
  if (type == CU_TENSOR_MAP_DATA_TYPE_UINT8) return 1;
  return type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : 2;
}

int bytes_of(CUtensorMapSwizzle swizzle) {
  return swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? 0 : 16 << static_cast<int>(swizzle);
}

// QUIRE_EMULATION_TENSOR_MAPS=0: a driver without.
bool makes_maps() {
  const char* text = std::getenv("QUIRE_EMULATION_TENSOR_MAPS");
  return text == nullptr || std::string_view(text) != "0";
}

}  // namespace
}  // namespace emulation

using namespace emulation;

extern "C" CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type,
                                           cuuint32_t rank, void* address, const cuuint64_t* dims,
                                           const cuuint64_t* strides, const cuuint32_t* box,
                                           const cuuint32_t* element_strides,
                                           CUtensorMapInterleave interleave,
                                           CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                                           CUtensorMapFloatOOBfill) {
  const auto multiple_of = [](const void* p, std::uintptr_t unit) {
    return reinterpret_cast<std::uintptr_t>(p) % unit == 0;
  };
  BoxMap made{};
  const int element = bytes_of(type), span = bytes_of(swizzle);
  bool legal = limits().capability >= 90 && multiple_of(map, 64) && multiple_of(address, 16) &&
               rank >= 1 && rank <= kMostDims && interleave == CU_TENSOR_MAP_INTERLEAVE_NONE;
  for (cuuint32_t i = 0; legal && i < rank; ++i) {
    legal = dims[i] >= 1 && dims[i] <= std::uint64_t{1} << 32 && box[i] >= 1 && box[i] <= 256 &&
            element_strides[i] == 1;  // others are legal, and not emulated
    if (i > 0) legal = legal && strides[i - 1] % 16 == 0 && strides[i - 1] < std::uint64_t{1} << 40;
    made.extent[i] = dims[i];
    made.box[i] = static_cast<std::uint16_t>(box[i]);
    if (i > 0) made.stride[i - 1] = strides[i - 1];
  }
  const auto inner = legal ? box[0] * static_cast<cuuint32_t>(element) : 0u;
  legal = legal && inner % 16 == 0 && (span == 0 || inner <= static_cast<cuuint32_t>(span));
  if (!legal) return CUDA_ERROR_INVALID_VALUE;
  made.mark = kMapMark;
  made.address = static_cast<const char*>(address);
  made.rank = static_cast<std::uint8_t>(rank);
  made.element_bytes = static_cast<std::uint8_t>(element);
  made.swizzle_bytes = static_cast<std::uint8_t>(span);
  *map = {};
  std::memcpy(map, &made, sizeof made);
  return CUDA_SUCCESS;
}

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                                        unsigned, unsigned long long,
                                                        cudaDriverEntryPointQueryResult* result) {
  const bool found = makes_maps() && std::string_view(symbol) == "cuTensorMapEncodeTiled";
  *function = found ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled) : nullptr;
  *result = found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return alive();
}
