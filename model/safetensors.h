#pragma once
// A .safetensors file, mapped read-only. The header is checked, never trusted: every tensor that
// this class hands out lies inside the file, is as long as its shape and dtype say, and overlaps no
// other.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/dtype.h"

namespace quire {

// Bytes of a file in memory; unmapped at the end.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  // The kernel may drop these pages; they are read again when touched.
  void forget(const std::byte* begin, std::size_t bytes) const;

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

struct StoredTensor {
  DType dtype = DType::f32;
  bool usable = true;  // false: of a type that nothing here computes with (F64, BOOL, …)
  std::vector<std::int64_t> shape;
  std::size_t begin = 0;  // in the file
  std::size_t bytes = 0;
};

using TensorTable = std::map<std::string, StoredTensor, std::less<>>;

// The header of a file of file_size bytes, of which `head` are the first (at least the header).
// Throws Failure naming file, tensor, expected and found.
TensorTable parse_safetensors_header(std::string_view head, std::size_t file_size,
                                     const std::filesystem::path& file);

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const TensorTable& tensors() const { return tensors_; }
  const std::byte* data(const StoredTensor& tensor) const { return map_.data() + tensor.begin; }
  const MappedFile& map() const { return map_; }

 private:
  std::filesystem::path path_;
  MappedFile map_;
  TensorTable tensors_;
};

// "[384, 64]"
std::string shape_text(const std::vector<std::int64_t>& shape);

// All tensors of a model directory: model.safetensors, or the shards of
// model.safetensors.index.json.
class Checkpoint {
 public:
  struct Entry {
    const SafetensorsFile* file = nullptr;
    const StoredTensor* tensor = nullptr;
  };

  explicit Checkpoint(const std::filesystem::path& model_dir);
  static bool is_in(const std::filesystem::path& model_dir);

  // Null: not there. Throws Failure for a tensor whose place is in doubt: one that is in two
  // shards, or not in the one that the index names.
  const Entry* find(std::string_view name) const;
  // Of the index, by tensor; harmless where nobody needs the tensor.
  const std::map<std::string, std::string, std::less<>>& doubts() const { return doubts_; }
  const std::filesystem::path& directory() const { return directory_; }
  const std::map<std::string_view, Entry, std::less<>>& tensors() const { return tensors_; }

 private:
  void add(const std::filesystem::path& file);

  std::filesystem::path directory_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string_view, Entry, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> doubts_;  // why
};

}  // namespace quire
