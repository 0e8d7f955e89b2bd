#pragma once
// What stands where a model's folder is expected and is none.

#include <filesystem>

namespace quire {

// Throws Failure, in words, for a file, for the cache's whole folder of a repository, and where
// what serving reads of the folder is a link to nothing.
void check_model_folder(const std::filesystem::path& model);

}  // namespace quire
