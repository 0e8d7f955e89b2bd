#pragma once
// Where a test puts its files: a path that no other run of it on this machine has, gone at its end.

#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>
#include <system_error>

namespace quire {

inline std::filesystem::path temp_path(const std::string& name) {
  struct Given {
    std::set<std::filesystem::path> paths;
    ~Given() {
      std::error_code ignored;
      for (const auto& path : paths) std::filesystem::remove_all(path, ignored);
    }
  };
  static Given given;
  return *given.paths
              .insert(std::filesystem::temp_directory_path() /
                      (std::to_string(::getpid()) + "-" + name))
              .first;
}

}  // namespace quire
