#pragma once
// Algorithms that were measured to be the fastest, from one start to the next: a file for each kind
// of device. Algorithms are bytes that cuBLASLt documents to be valid for the same version of the
// library; a file of another version, of another driver or in another form counts as none.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace quire::cuda {

// A measured choice as it is kept: the words of cublasLtMatmulAlgo_t, and whether sums are fast.
using GemmChoice = std::array<std::uint64_t, 9>;

class GemmChoices {
 public:
  static constexpr std::size_t kMost = 4096;  // in a file

  // folder: where files are kept, empty for nowhere. version: what choices depend on beside the
  // device. trouble(): why there is nothing, where there should have been.
  GemmChoices(const std::string& folder, std::string_view device, std::string version);

  const std::string& trouble() const { return trouble_; }
  const std::string& file() const { return file_; }
  std::optional<GemmChoice> find(const std::string& key) const;
  void add(const std::string& key, const GemmChoice& choice);
  // Writes what was added, with what the file has got meanwhile; nothing where nothing was. Why it
  // could not, empty when it could.
  std::string save();

 private:
  using Entries = std::map<std::string, GemmChoice>;
  std::string text() const;
  Entries read(std::string& trouble) const;

  std::string folder_, file_, version_, trouble_;
  Entries entries_, added_;
};

}  // namespace quire::cuda
