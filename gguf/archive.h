#pragma once
// A model in one GGUF file, or in shards named model-00001-of-00003.gguf: any of them opens all.

#include <filesystem>
#include <memory>
#include <vector>

#include "base/mapped_file.h"
#include "gguf/header.h"

namespace quire::gguf {

struct Shard {
  explicit Shard(const std::filesystem::path& path);

  std::filesystem::path path;
  MappedFile map;
  Header header;  // points into the map
};

class Archive {
 public:
  // Throws Failure for shards that are missing, contradict each other or name a tensor twice.
  explicit Archive(const std::filesystem::path& path);

  // The model's metadata, which is in the first shard.
  const Metadata& metadata() const { return shards_.front()->header.metadata; }
  const std::vector<std::unique_ptr<Shard>>& shards() const { return shards_; }
  const TensorInfo* find(std::string_view tensor) const;  // null: not there

 private:
  void open_others(const std::filesystem::path& first, std::int64_t count);
  void check_tensors() const;

  std::vector<std::unique_ptr<Shard>> shards_;
};

// Named .gguf, or a file that begins as one; a folder is a model in the other form.
bool is_gguf(const std::filesystem::path& model);
// All files that the model is in, in their order; without opening them.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& model);

}  // namespace quire::gguf
