#pragma once
// A timer as something that others wake.

#include <boost/asio/steady_timer.hpp>

#include "base/async.h"

namespace quire {

// Until its time, or until it is cancelled. Throws only where this coroutine is to end.
awaitable<void> until_woken(asio::steady_timer& timer);

}  // namespace quire
