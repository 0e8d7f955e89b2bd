#pragma once
// What is said of engines that are not ready, and how long a server that starts waits for them. Any
// thread.

#include <chrono>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/result.h"
#include "engine/client/engine_client.h"
#include "engine/client/ready_info.h"

namespace quire {

// What those that are not ready do, for people; empty: all are.
std::string progress_of(const Engines& engines);

// The first that has died, or that was silent for too long while it starts: that one is given up.
std::optional<Error> failed_engine(const Engines& engines, std::chrono::milliseconds ready_timeout);
// Whether one leaves or has left that was asked to end, and is not gone for longer.
bool expected_back(const Engines& engines, std::chrono::nanoseconds patience);
// Whether one that returns is what the server has said it is.
Result<void> check_return(const ReadyInfo& info, const Ready& ready);
// Until the first of those that start has been silent for too long.
std::chrono::nanoseconds silence_left(const Engines& engines,
                                      std::chrono::milliseconds ready_timeout);
// A line in the log for each that starts, with what it waits for.
void log_waiting(const Engines& engines);

}  // namespace quire
