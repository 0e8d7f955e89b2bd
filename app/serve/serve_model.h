#pragma once
// Which model `quire serve` serves, and where it lies.

#include "app/serve/flags.h"

namespace CLI {
class App;
}

namespace quire {

void add_serve_model_flags(CLI::App& app, ServeFlags& flags);

// A folder, or the one that a name stands for; it is fetched where it is not there. Throws
// CLI::Error.
void find_model_folder(ServeFlags& flags);

}  // namespace quire
