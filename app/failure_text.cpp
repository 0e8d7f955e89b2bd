#include "app/failure_text.h"

#include "app/flag_names.h"

#include <new>
#include <system_error>

namespace quire {

std::string failure_text(const std::exception& failure) {
  constexpr const char* kLimits = "the limits of this process (ulimit -v, ulimit -u, its cgroup)";
  if (dynamic_cast<const std::bad_alloc*>(&failure) != nullptr)
    return std::string("there is no memory left; see ") + kLimits;
  const auto* system = dynamic_cast<const std::system_error*>(&failure);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again)
    return std::string("the system gives no more threads, or no memory for their stacks; see ") +
           kLimits;
  return with_flags(failure.what());
}

}  // namespace quire
