#pragma once
// How many files this process may have open; each connection is one.

#include <cstdint>

#include "base/result.h"
#include "server/config.h"

namespace quire {

inline constexpr std::int64_t kSpareFiles = 48;  // of the model, engines, the log, the driver

// Raises the soft limit to the hard one, and returns it.
std::int64_t raise_open_files();

// As many connections as `open_files` carry; fewer than asked for where they must be. The error
// says that it is too few for any.
Result<void> fit_connections(HttpLimits& limits, std::int64_t open_files);

}  // namespace quire
