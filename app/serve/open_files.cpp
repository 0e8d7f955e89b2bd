#include "app/serve/open_files.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace quire {

std::int64_t raise_open_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::numeric_limits<std::int64_t>::max();
  if (limit.rlim_cur < limit.rlim_max) {
    const rlimit raised{limit.rlim_max, limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return limit.rlim_cur > std::numeric_limits<std::int64_t>::max()
             ? std::numeric_limits<std::int64_t>::max()
             : static_cast<std::int64_t>(limit.rlim_cur);
}

Result<void> fit_connections(HttpLimits& limits, std::int64_t open_files) {
  constexpr std::int64_t kFewest = 8;
  const std::int64_t room = open_files - kSpareFiles;
  if (room < kFewest) {
    return Error{ErrorCode::unavailable,
                 fmt::format("{} files may be open, too few for a server: ulimit -n {} at least",
                             open_files, kSpareFiles + kFewest),
                 {}};
  }
  const auto probes =
      std::min<std::int64_t>(static_cast<std::int64_t>(limits.probe_connections), room / 4);
  limits.probe_connections = static_cast<std::size_t>(probes);
  limits.max_connections =
      std::min(limits.max_connections, static_cast<std::size_t>(room - probes));
  return {};
}

}  // namespace quire
