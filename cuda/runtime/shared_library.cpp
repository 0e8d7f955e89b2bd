#include "cuda/runtime/shared_library.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>

#include "base/error.h"

namespace quire::cuda {

std::vector<std::string> python_package_folders(const std::string& inside) {
  std::vector<std::string> roots;
  if (const char* active = std::getenv("VIRTUAL_ENV")) roots.emplace_back(active);
  if (const char* home = std::getenv("HOME")) roots.push_back(std::string(home) + "/.local");
  roots.insert(roots.end(), {"/usr/local", "/usr"});
  std::vector<std::string> folders;
  for (const std::string& root : roots) {
    glob_t found{};
    const std::string pattern = root + "/lib/python3*/{site,dist}-packages/" + inside;
    if (glob(pattern.c_str(), GLOB_BRACE, nullptr, &found) == 0)
      folders.insert(folders.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
  }
  return folders;
}

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
