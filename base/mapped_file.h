#pragma once
// A file in memory, read-only.

#include <cstddef>
#include <filesystem>

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

}  // namespace quire
