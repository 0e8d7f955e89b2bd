#include "cuda/runtime/cublaslt.h"

namespace quire::cuda {

const SharedLibrary& cublaslt() {
  static const SharedLibrary library = [] {
    std::vector<std::string> folders = python_package_folders("nvidia/{cu13,cublas}/lib");
    folders.insert(folders.begin(), "/usr/local/cuda/lib64");
    return SharedLibrary({"libcublasLt.so.13", "libcublasLt.so.12"}, folders);
  }();
  return library;
}

}  // namespace quire::cuda
