#pragma once
// A library that is opened at run time, so that a program starts where it is not installed.

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

namespace quire::cuda {

// Where Python packages that are installed here have this folder: those of the active environment
// first, then the user's, then the machine's.
std::vector<std::string> python_package_folders(const std::string& inside);

// Open for as long as the process lives.
class SharedLibrary {
 public:
  // Opens the first of names that there is: where the loader looks, then in the folders.
  SharedLibrary(const std::vector<std::string>& names, const std::vector<std::string>& folders);

  // Why there is none; empty when there is one.
  const std::string& missing() const { return missing_; }
  // Throws Failure where the library, or the symbol in it, is missing.
  void* symbol(const char* name) const;

 private:
  void* handle_ = nullptr;
  std::string missing_;
};

// A function of such a library, called by name as if it were linked.
template <const SharedLibrary& (*kLibrary)(), class Function>
class LibraryFunction;
template <const SharedLibrary& (*kLibrary)(), class Result, class... Arguments>
class LibraryFunction<kLibrary, Result(Arguments...)> {
 public:
  constexpr explicit LibraryFunction(const char* name) : name_(name) {}
  Result operator()(Arguments... arguments) {
    auto* found = found_.load(std::memory_order_acquire);
    if (found == nullptr) {
      found = reinterpret_cast<Result (*)(Arguments...)>(kLibrary().symbol(name_));
      found_.store(found, std::memory_order_release);
    }
    return found(arguments...);
  }

 private:
  const char* name_;
  std::atomic<Result (*)(Arguments...)> found_ = nullptr;
};

}  // namespace quire::cuda
