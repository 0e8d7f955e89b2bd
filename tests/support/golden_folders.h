#pragma once
// Where the reference's answers are: the chosen few in the repository, or all of $QUIRE_GOLDEN_DIR.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "model/registry.h"

namespace quire {

// Folders of models whose weights are not quantized, or in a way that is supported; but for 8-bit
// inputs: that reference rounds them by token, which is not what is computed here.
inline std::vector<std::filesystem::path> golden_models() {
  namespace fs = std::filesystem;
  const char* full = std::getenv("QUIRE_GOLDEN_DIR");
  const fs::path root = full != nullptr ? fs::path(full) : fs::path("tests/data/golden");
  std::vector<fs::path> folders;
  for (const char* kind : {"models", "quantized"}) {
    for (const auto& entry : fs::directory_iterator(root / kind)) {
      if (!fs::exists(entry.path() / "config.json")) continue;
      const QuantConfig quant = read_model_config(entry.path()).quant;
      const bool rounds_inputs = quant.packed && quant.packed->layout == PackedLayout::int8;
      if (quant.supported() && !rounds_inputs) folders.push_back(entry.path());
    }
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

// Folders of a target and a draft; only those whose name contains `part`.
inline std::vector<std::filesystem::path> golden_drafts(const std::string& part = "") {
  namespace fs = std::filesystem;
  const char* full = std::getenv("QUIRE_GOLDEN_DIR");
  const fs::path root = full != nullptr ? fs::path(full) : fs::path("tests/data/golden");
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(root / "drafts")) {
    const bool is_named = entry.path().filename().string().find(part) != std::string::npos;
    if (is_named && fs::exists(entry.path() / "golden.json")) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace quire
