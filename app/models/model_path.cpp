#include "app/models/model_path.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "gguf/archive.h"
#include "model/model_folder.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// Of each GGUF model in the folder its first file.
std::vector<fs::path> gguf_models(const fs::path& folder) {
  std::vector<fs::path> models;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::error_code ignored;  // a link that leads nowhere is no model
    if (!entry.is_regular_file(ignored) || !gguf::is_gguf(entry.path())) continue;
    models.push_back(gguf::files_of(entry.path()).front());
  }
  // What looks at pictures for a model beside it, as llama.cpp's converter names it.
  const auto is_projector = [](const fs::path& model) {
    return model.filename().string().find("mmproj") != std::string::npos;
  };
  if (!std::ranges::all_of(models, is_projector)) std::erase_if(models, is_projector);
  std::ranges::sort(models);
  models.erase(std::unique(models.begin(), models.end()), models.end());
  return models;
}

}  // namespace

std::string model_at(const std::string& path) {
  if (fs::is_symlink(path) && !fs::exists(path)) {
    throw Failure(ErrorCode::not_found, path + " is a link to " + fs::read_symlink(path).string() +
                                            ", where there is nothing");
  }
  if (!fs::exists(path)) return path;
  if (fs::is_regular_file(path)) {
    if (gguf::is_gguf(path)) return path;
    throw Failure(ErrorCode::invalid_argument,
                  path + " is a file; give its folder, or a .gguf file");
  }
  if (!fs::is_directory(path))
    throw Failure(ErrorCode::invalid_argument, path + " is neither a folder nor a file");
  check_model_folder(path);
  if (fs::exists(fs::path(path) / "config.json")) return path;
  const std::vector<fs::path> models = gguf_models(path);
  if (models.size() == 1) return models.front().string();
  if (models.empty()) return path;
  std::string names;
  for (const fs::path& model : models) names += (names.empty() ? "" : ", ") + model.string();
  throw Failure(ErrorCode::invalid_argument, path + " holds several models; name one: " + names);
}

}  // namespace quire
