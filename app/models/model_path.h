#pragma once
// Where a model lies, of what a command line says.

#include <string>

namespace quire {

// The path itself; for a folder without config.json that holds one GGUF model (a file, or the
// shards of one), that. Throws Failure where it holds several, and for what is neither a folder nor
// a regular file.
std::string model_at(const std::string& path);

}  // namespace quire
