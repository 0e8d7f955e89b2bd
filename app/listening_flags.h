#pragma once
// The part of `quire serve`'s command line that says where it listens, to whom, and how patiently.

#include <chrono>
#include <string>

#include "server/config.h"

namespace CLI {
class App;
}

namespace quire {

void add_listening_flags(CLI::App& app, ServerConfig& server);

// A length of time, given in seconds with or without a fraction.
void add_seconds(CLI::App& app, const std::string& flag, std::chrono::milliseconds& value,
                 const std::string& what);

}  // namespace quire
