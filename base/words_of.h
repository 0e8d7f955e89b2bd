#pragma once
// What an exception says, as a sentence: the standard library's own words for a system that has no
// more to give are none.

#include <exception>
#include <new>
#include <string>
#include <system_error>

namespace quire {

inline std::string words_of(const std::exception& failure) {
  constexpr const char* kLimits = "the limits of this process (ulimit -v, ulimit -u, its cgroup)";
  if (dynamic_cast<const std::bad_alloc*>(&failure) != nullptr)
    return std::string("there is no memory left; see ") + kLimits;
  const auto* system = dynamic_cast<const std::system_error*>(&failure);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again)
    return std::string("the system gives no more threads, or no memory for their stacks; see ") +
           kLimits;
  return failure.what();
}

}  // namespace quire
