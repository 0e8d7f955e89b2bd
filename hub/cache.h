#pragma once
// Models on this disk, laid out as Python's huggingface_hub lays them out, so that both share them:
// models--org--name/{blobs/HASH, refs/REVISION, snapshots/COMMIT/FILE → ../../blobs/HASH}. Several
// processes may use it at a time: a file is fetched under its lock and appears when it is whole.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hub/names.h"

namespace quire::hub {

struct CachedModel {
  std::string repo;
  std::string commit;
  std::vector<std::string> revisions;  // that point to it
  std::uintmax_t bytes = 0;
  std::filesystem::path folder;
  bool complete = false;
};

class Cache {
 public:
  explicit Cache(std::filesystem::path root) : root_(std::move(root)) {}
  // HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub.
  static Cache of_environment();

  const std::filesystem::path& root() const { return root_; }
  // The folder of a model that is whole; empty: it is not here, or not all of it.
  std::optional<std::filesystem::path> find(const ModelName& name) const;
  std::vector<CachedModel> list() const;

  std::filesystem::path folder_of(const std::string& repo) const;
  std::filesystem::path blob(const std::string& repo, const std::string& hash) const;
  std::filesystem::path lock_file(const std::string& repo, const std::string& hash) const;
  std::filesystem::path snapshot(const std::string& repo, const std::string& commit) const;
  void set_ref(const ModelName& name, const std::string& commit) const;
  // Makes the file of a snapshot, whose path is safe, point to its blob.
  void link(const std::string& repo, const std::string& commit, const std::string& file,
            const std::string& hash) const;

 private:
  std::filesystem::path root_;
};

// Whether a folder has a config.json and all its weights: those that its index names, or that are
// numbered.
bool is_complete(const std::filesystem::path& folder);

// Those of `files` that are numbered weights, "model-00002-of-00003.safetensors", as they are read
// in a folder without an index; none where a number is missing.
std::vector<std::string> numbered_shards(const std::vector<std::string>& files);

// The files that model.safetensors.index.json names, in order; Failure where one is not safe.
std::vector<std::string> shards_of(const std::filesystem::path& index);

}  // namespace quire::hub
