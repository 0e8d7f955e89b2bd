#include "model/model_folder.h"

#include <algorithm>
#include <array>
#include <string>
#include <system_error>

#include "base/error.h"

namespace quire {

namespace fs = std::filesystem;

namespace {

constexpr std::array<std::string_view, 9> kRead = {
    "config.json",           "generation_config.json",  "tokenizer.json",
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.json",    "chat_template.jinja",     "model.safetensors.index.json"};

bool is_read(const fs::path& file) {
  return file.extension() == ".safetensors" ||
         std::find(kRead.begin(), kRead.end(), file.filename().string()) != kRead.end();
}

// A snapshot of the cache links to blobs that lie beside it.
void refuse_dangling_links(const fs::path& model) {
  for (const auto& entry : fs::directory_iterator(model)) {
    std::error_code error;  // of a link that leads back to itself
    if (!entry.is_symlink() || !is_read(entry.path()) || fs::exists(entry.path(), error)) continue;
    throw Failure(ErrorCode::not_found,
                  entry.path().string() + " is a link to " +
                      fs::read_symlink(entry.path()).string() +
                      ", where there is nothing; of a cache, its whole models--… folder has to be "
                      "there");
  }
}

void refuse_repository(const fs::path& model) {
  const fs::path snapshots = model / "snapshots";
  if (fs::exists(model / "config.json") || !fs::is_directory(snapshots)) return;
  std::string found;
  for (const auto& entry : fs::directory_iterator(snapshots))
    found += (found.empty() ? "" : ", ") + entry.path().string();
  throw Failure(ErrorCode::invalid_argument,
                model.string() + " is a repository's folder in a cache; name one of its snapshots" +
                    (found.empty() ? ", of which there is none" : ": " + found));
}

}  // namespace

void check_model_folder(const fs::path& model) {
  if (fs::is_regular_file(model)) {
    throw Failure(ErrorCode::invalid_argument,
                  model.string() +
                      " is a file; a model is the folder of its config.json, or a "
                      ".gguf file");
  }
  if (!fs::is_directory(model)) return;
  refuse_repository(model);
  refuse_dangling_links(model);
}

}  // namespace quire
