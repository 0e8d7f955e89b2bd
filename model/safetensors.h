#pragma once
// A .safetensors file, mapped read-only. The header is checked, never trusted: every tensor that
// this class hands out lies inside the file, is as long as its shape and dtype say, and overlaps no
// other.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/dtype.h"
#include "base/mapped_file.h"
#include "gguf/block_type.h"

namespace quire {

// What a GGUF file makes of a published tensor.
struct GgufTensor {
  gguf::BlockType type = gguf::BlockType::f32;
  // Rows of each of this many heads are in rotated pairs: 0, half, 1, half + 1, …; 0: as published.
  int paired_heads = 0;
  float added = 0.f;  // to each published value
};

struct StoredTensor {
  DType dtype = DType::f32;
  bool usable = true;  // false: of a type that nothing here computes with (F64, BOOL, …)
  std::vector<std::int64_t> shape;
  std::size_t begin = 0;  // in the file
  std::size_t bytes = 0;
  std::optional<GgufTensor> gguf = {};  // where the file is one
  std::string_view type = {};           // as a safetensors file spells it; a literal
};

using TensorTable = std::map<std::string, StoredTensor, std::less<>>;

// The header of a file of file_size bytes, of which `head` are the first (at least the header).
// Throws Failure naming file, tensor, expected and found.
TensorTable parse_safetensors_header(std::string_view head, std::size_t file_size,
                                     const std::filesystem::path& file);

// A file of tensors in memory.
class TensorFile {
 public:
  const std::filesystem::path& path() const { return path_; }
  const TensorTable& tensors() const { return tensors_; }
  const std::byte* data(const StoredTensor& tensor) const { return map_.data() + tensor.begin; }
  const MappedFile& map() const { return map_; }

 protected:
  explicit TensorFile(const std::filesystem::path& path) : path_(path), map_(path) {}
  TensorTable tensors_;

 private:
  std::filesystem::path path_;
  MappedFile map_;
};

class SafetensorsFile final : public TensorFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
};

// "[384, 64]"
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace quire
