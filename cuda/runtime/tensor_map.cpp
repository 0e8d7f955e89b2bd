#include "cuda/runtime/tensor_map.h"

#include <cuda_runtime.h>

#include "base/error.h"

namespace quire::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

struct Driver {
  Encode encode = nullptr;
  std::string missing;

  Driver() {
    constexpr const char* kName = "cuTensorMapEncodeTiled";
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    constexpr unsigned kSince = 12000;  // CUDA 12.0
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(kName, &found, kSince, cudaEnableDefault, &result);
#else
    const cudaError_t error = cudaGetDriverEntryPoint(kName, &found, cudaEnableDefault, &result);
#endif
    if (error != cudaSuccess) cudaGetLastError();
    if (error == cudaSuccess && result == cudaDriverEntryPointSuccess && found != nullptr) {
      encode = reinterpret_cast<Encode>(found);
    } else {
      missing = std::string("the CUDA driver has no ") + kName +
                (error != cudaSuccess ? std::string(": ") + cudaGetErrorString(error) : "");
    }
  }
};
const Driver& driver() {
  static const Driver one;
  return one;
}

constexpr std::int64_t kStrideUnit = 16, kStrideEnd = std::int64_t{1} << 40;
constexpr int kMostDims = 5;

CUtensorMapDataType element_of(DType dtype) {
  if (dtype == DType::bf16) return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  return size_of(dtype) == 2 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8;
}

}  // namespace

const std::string& tensor_maps_unavailable() { return driver().missing; }

bool fits_tensor_map(const TensorView& tensor) {
  const auto element = static_cast<std::int64_t>(size_of(tensor.dtype()));
  const int last = tensor.rank() - 1;
  bool fits = last > 0 && element <= 2 && tensor.stride(last) == 1 &&
              tensor.extent(last) * element % kStrideUnit == 0 &&
              reinterpret_cast<std::uintptr_t>(tensor.data()) % kStrideUnit == 0;
  for (int i = 0; i < last; ++i) {
    const std::int64_t bytes = tensor.stride(i) * element;
    fits = fits && bytes >= 0 && bytes < kStrideEnd && bytes % kStrideUnit == 0;
  }
  return fits;
}

CUtensorMap tensor_map(const TensorView& tensor, std::initializer_list<int> box) {
  const auto element = static_cast<cuuint64_t>(size_of(tensor.dtype()));
  const int rank = tensor.rank();
  cuuint64_t dims[kMostDims] = {}, strides[kMostDims] = {};
  cuuint32_t sizes[kMostDims] = {}, every[kMostDims] = {};
  for (int i = 0; i < rank; ++i) {
    const int from = rank - 1 - i;
    dims[i] = static_cast<cuuint64_t>(tensor.extent(from));
    if (i > 0) strides[i - 1] = static_cast<cuuint64_t>(tensor.stride(from)) * element;
    sizes[i] = static_cast<cuuint32_t>(box.begin()[from]);
    every[i] = 1;
  }
  CUtensorMap map;
  const CUresult result = driver().encode(
      &map, element_of(tensor.dtype()), static_cast<cuuint32_t>(rank), tensor.data(), dims, strides,
      sizes, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw Failure(ErrorCode::internal, "cuTensorMapEncodeTiled refuses a tensor: error " +
                                           std::to_string(static_cast<int>(result)));
  return map;
}

}  // namespace quire::cuda
