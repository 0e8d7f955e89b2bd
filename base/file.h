#pragma once
// Files that are read whole.

#include <cstddef>
#include <filesystem>
#include <iosfwd>
#include <string>

namespace quire {

// Reads a file, or a pipe that has a name. Throws Failure naming it where it is missing, unreadable
// or beyond `limit` bytes.
std::string read_text_file(const std::filesystem::path& file, std::size_t limit);

// Reads a stream to its end. Throws Failure naming it by `name` where there are more than `limit`
// bytes, or it cannot be read.
std::string read_text(std::istream& in, std::size_t limit, const std::string& name);

}  // namespace quire
