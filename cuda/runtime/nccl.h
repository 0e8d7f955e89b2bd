#pragma once
// The part of NCCL that is used, with its own names: what the library's public header declares and
// has kept since version 2.18. The library is opened at the first call.

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include "cuda/runtime/shared_library.h"

namespace quire::cuda {

using ncclComm_t = struct ncclComm*;
struct ncclUniqueId {
  char internal[128];
};
enum ncclResult_t : int { ncclSuccess = 0 };
enum ncclDataType_t : int { ncclInt32 = 2, ncclFloat32 = 7 };
enum ncclRedOp_t : int { ncclSum = 0 };

const SharedLibrary& nccl();

// Why it cannot be used, in one sentence; empty when it can.
std::string nccl_unavailable();
// "2.27.3"
std::string nccl_version();

template <class Function>
using Nccl = LibraryFunction<&nccl, Function>;

inline Nccl<ncclResult_t(int* version)> ncclGetVersion{"ncclGetVersion"};
inline Nccl<ncclResult_t(ncclUniqueId* id)> ncclGetUniqueId{"ncclGetUniqueId"};
inline Nccl<ncclResult_t(ncclComm_t* comm, int size, ncclUniqueId id, int rank)> ncclCommInitRank{
    "ncclCommInitRank"};
inline Nccl<ncclResult_t(ncclComm_t comm)> ncclCommAbort{"ncclCommAbort"};
inline Nccl<const char*(ncclResult_t result)> ncclGetErrorString{"ncclGetErrorString"};
inline Nccl<const char*(ncclComm_t comm)> ncclGetLastError{"ncclGetLastError"};
inline Nccl<ncclResult_t(const void* from, void* to, std::size_t count, ncclDataType_t type,
                         ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)>
    ncclAllReduce{"ncclAllReduce"};
inline Nccl<ncclResult_t(const void* from, void* to, std::size_t count, ncclDataType_t type,
                         ncclComm_t comm, cudaStream_t stream)>
    ncclAllGather{"ncclAllGather"};
inline Nccl<ncclResult_t(const void* from, void* to, std::size_t count, ncclDataType_t type,
                         int root, ncclComm_t comm, cudaStream_t stream)>
    ncclBroadcast{"ncclBroadcast"};

void check(ncclResult_t result, const char* call, ncclComm_t comm);

}  // namespace quire::cuda
