#pragma once
// `quire serve --print-config`: every flag as a line of the file that --config reads. What was given
// stands there; the rest is commented out. Keys are not shown.

#include <string>

namespace CLI {
class App;
}

namespace quire {

std::string config_text(const CLI::App& app);

}  // namespace quire
