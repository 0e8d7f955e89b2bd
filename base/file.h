#pragma once
// Files that are read whole.

#include <cstddef>
#include <filesystem>
#include <string>

namespace quire {

// Throws Failure naming the file where it is missing, unreadable or beyond `limit` bytes.
std::string read_text_file(const std::filesystem::path& file, std::size_t limit);

}  // namespace quire
