#pragma once
// What an exception says, as a sentence: the standard library's own words for a system that has no
// more to give are none, nor are those of a path that cannot be looked at.

#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <system_error>

namespace quire {

inline std::string message_of(const std::exception& failure) {
  constexpr const char* kLimits = "the limits of this process (ulimit -v, ulimit -u, its cgroup)";
  if (dynamic_cast<const std::bad_alloc*>(&failure) != nullptr)
    return std::string("there is no memory left; see ") + kLimits;
  const auto* system = dynamic_cast<const std::system_error*>(&failure);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again)
    return std::string("the system gives no more threads, or no memory for their stacks; see ") +
           kLimits;
  const auto* path = dynamic_cast<const std::filesystem::filesystem_error*>(&failure);
  if (path != nullptr && !path->path1().empty())
    return path->path1().string() + ": " + path->code().message();
  return failure.what();
}

}  // namespace quire
