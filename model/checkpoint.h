#pragma once
// All tensors of a model by their published names: of model.safetensors, of the shards of
// model.safetensors.index.json, or of a GGUF file and its shards (model/gguf/tensors.h).

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/safetensors.h"

namespace quire {

class Checkpoint {
 public:
  struct Entry {
    const TensorFile* file = nullptr;
    const StoredTensor* tensor = nullptr;
  };

  explicit Checkpoint(const std::filesystem::path& model);
  static bool is_in(const std::filesystem::path& model);

  // Null: not there. Throws Failure for a tensor whose place is in doubt: one that is in two
  // shards, or not in the one that the index names.
  const Entry* find(std::string_view name) const;
  // What nobody has looked for, by name.
  std::vector<std::string_view> unasked() const;
  // Of the index, by tensor; harmless where nobody needs the tensor.
  const std::map<std::string, std::string, std::less<>>& doubts() const { return doubts_; }
  // For whoever runs this; empty: nothing.
  const std::string& note() const { return note_; }
  const std::filesystem::path& directory() const { return directory_; }  // or the GGUF file
  const std::map<std::string_view, Entry, std::less<>>& tensors() const { return tensors_; }

 private:
  void open_shards();
  void open_numbered_shards();  // without an index
  void add(std::unique_ptr<TensorFile> file);

  std::filesystem::path directory_;
  std::vector<std::unique_ptr<TensorFile>> files_;
  std::map<std::string_view, Entry, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> doubts_;  // why
  std::string note_;
  mutable std::mutex asked_mutex_;
  mutable std::set<std::string_view> asked_;
};

}  // namespace quire
