#include "cuda/runtime/nccl.h"

#include "base/error.h"

namespace quire::cuda {
namespace {

constexpr int kOldest = 21800;  // major · 10000 + minor · 100 + patch
constexpr const char* kHowTo =
    "NCCL is what brings the ranks of several GPUs together: 2.18 or later, Debian's package "
    "libnccl2 or the Python package nvidia-nccl-cu13";

int version_number() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

}  // namespace

const SharedLibrary& nccl() {
  static const SharedLibrary library = [] {
    std::vector<std::string> folders = python_package_folders("nvidia/nccl/lib");
    folders.insert(folders.begin(), "/usr/local/cuda/lib64");
    return SharedLibrary({"libnccl.so.2"}, folders);
  }();
  return library;
}

std::string nccl_version() {
  const int version = version_number();
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string nccl_unavailable() {
  if (!nccl().missing().empty()) return std::string(kHowTo) + "; " + nccl().missing();
  if (version_number() < kOldest) return std::string(kHowTo) + ", not " + nccl_version();
  return "";
}

void check(ncclResult_t result, const char* call, ncclComm_t comm) {
  if (result == ncclSuccess) return;
  const char* const more = ncclGetLastError(comm);
  throw Failure(ErrorCode::internal,
                std::string(call) + ": " + ncclGetErrorString(result) +
                    (more != nullptr && *more != 0 ? ": " + std::string(more) : std::string()));
}

}  // namespace quire::cuda
