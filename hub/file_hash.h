#pragma once
// The hash that names a file in a repository, made while its bytes come.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace quire::hub {

class FileHash {
 public:
  // SHA-256 of the bytes, or SHA-1 of the git blob of `size` bytes.
  FileHash(bool is_large, std::uint64_t size);
  ~FileHash();
  FileHash(FileHash&&) noexcept;
  FileHash& operator=(FileHash&&) noexcept;

  void add(std::string_view bytes);
  std::string hex();  // once, at the end

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire::hub
