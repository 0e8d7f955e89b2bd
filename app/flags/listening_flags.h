#pragma once
// The part of `quire serve`'s command line that says where it listens, to whom, and how patiently.

#include "server/config.h"

namespace CLI {
class App;
}

namespace quire {

void add_listening_flags(CLI::App& app, ServerConfig& server);

}  // namespace quire
