#pragma once
// The header of a GGUF file, versions 2 and 3, little-endian. It is checked, never trusted: every
// tensor of a parsed header lies inside the file, is as long as its shape and type say, and overlaps
// no other.

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "gguf/block_type.h"
#include "gguf/metadata.h"

namespace quire::gguf {

struct TensorInfo {
  std::string_view name;
  const BlockTypeInfo* type = nullptr;
  std::vector<std::int64_t> shape;  // the longest stride first, as in safetensors; at most 4
  std::size_t begin = 0;            // in the file
  std::size_t bytes = 0;
  std::size_t offset = 0;  // of the header's entry
};

struct Header {
  std::uint32_t version = 0;
  Metadata metadata;
  std::vector<TensorInfo> tensors;  // in the order of the file
};

// `file` holds the whole file, which the header's texts point into. Throws Failure naming path,
// field and offset.
Header parse_header(std::string_view file, const std::filesystem::path& path);

}  // namespace quire::gguf
