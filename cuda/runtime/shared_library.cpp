#include "cuda/runtime/shared_library.h"

#include <dlfcn.h>

#include "base/error.h"

namespace quire::cuda {

SharedLibrary::SharedLibrary(const std::vector<std::string>& names,
                             const std::vector<std::string>& folders) {
  const auto open = [&](const std::string& file) {
    if (handle_ != nullptr) return;
    handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) missing_ += (missing_.empty() ? "" : "; ") + std::string(dlerror());
  };
  for (const std::string& name : names) open(name);
  for (const std::string& folder : folders) {
    for (const std::string& name : names) open(folder + "/" + name);
  }
  if (handle_ != nullptr) missing_.clear();
}

void* SharedLibrary::symbol(const char* name) const {
  if (handle_ == nullptr) throw Failure(ErrorCode::unavailable, missing_);
  void* found = dlsym(handle_, name);
  if (found == nullptr) throw Failure(ErrorCode::unavailable, dlerror());
  return found;
}

}  // namespace quire::cuda
