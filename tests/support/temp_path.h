#pragma once
// Where a test puts its files: a path that no other run of it on this machine has.

#include <unistd.h>

#include <filesystem>
#include <string>

namespace quire {

inline std::filesystem::path temp_path(const std::string& name) {
  return std::filesystem::temp_directory_path() / (std::to_string(::getpid()) + "-" + name);
}

}  // namespace quire
