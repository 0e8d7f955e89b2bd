#pragma once
// Coroutines that do one thing together, on the caller's strand.

#include <vector>

#include "base/async.h"

namespace quire {

// Runs all until the last has ended. The first error cancels the others, and is thrown when they
// have ended too; a caller that is cancelled cancels them all.
awaitable<void> all_of(std::vector<awaitable<void>> tasks);

}  // namespace quire
