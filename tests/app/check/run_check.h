#pragma once
// `quire check MODEL FLAGS…` as a call; its exit status.

#include <filesystem>
#include <string>
#include <vector>

#include "app/check/check_main.h"

namespace quire {

inline int run_check(const std::filesystem::path& model, const std::vector<std::string>& flags) {
  const std::string path = model.string();
  std::vector<const char*> argv{"quire check", path.c_str()};
  for (const std::string& flag : flags) argv.push_back(flag.c_str());
  return check_main(static_cast<int>(argv.size()), argv.data());
}

}  // namespace quire
