#include "app/model_path.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "gguf/archive.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// Of each GGUF model in the folder its first file.
std::vector<fs::path> gguf_models(const fs::path& folder) {
  std::vector<fs::path> models;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.is_regular_file() || !gguf::is_gguf(entry.path())) continue;
    models.push_back(gguf::files_of(entry.path()).front());
  }
  std::ranges::sort(models);
  models.erase(std::unique(models.begin(), models.end()), models.end());
  return models;
}

}  // namespace

std::string model_at(const std::string& path) {
  if (!fs::exists(path) || fs::is_regular_file(path)) return path;
  if (!fs::is_directory(path))
    throw Failure(ErrorCode::invalid_argument, path + " is neither a folder nor a file");
  if (fs::exists(fs::path(path) / "config.json")) return path;
  const std::vector<fs::path> models = gguf_models(path);
  if (models.size() == 1) return models.front().string();
  if (models.empty()) return path;
  std::string names;
  for (const fs::path& model : models) names += (names.empty() ? "" : ", ") + model.string();
  throw Failure(ErrorCode::invalid_argument, path + " holds several models; name one: " + names);
}

}  // namespace quire
