#pragma once
// The config.json of the checkpoint that a GGUF file was converted from, as far as its metadata
// tells: the one parser of configurations reads it.

#include <filesystem>
#include <string>

namespace quire {

// JSON in the published form. Throws Failure naming file, key and offset for what is missing, out of
// range or of an architecture that is not supported.
std::string gguf_config_json(const std::filesystem::path& path);

}  // namespace quire
