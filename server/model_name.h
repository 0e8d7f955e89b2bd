#pragma once
// What a model may be called in requests.

#include <algorithm>
#include <filesystem>
#include <string>

#include "server/config.h"

namespace quire {

// "llama" of "/models/llama" and of "/models/llama.gguf", "org/name@v1" of "org/name": not a name that
// somebody chose.
inline bool is_named_after(const std::string& name, const std::filesystem::path& root) {
  const auto last = root.has_filename() ? root.filename() : root.parent_path().filename();
  return name == last || name == last.stem() || name.substr(0, name.find('@')) == root;
}

// One of /v1/models, or what the server was started with, which clients of vLLM's send; not where the
// model was given other names.
inline bool is_model(const std::string& name, const ServerConfig& config) {
  const auto& names = config.served_model_names;
  if (std::ranges::find(names, name) != names.end()) return true;
  return name == config.model_root && is_named_after(names.front(), config.model_root);
}

}  // namespace quire
