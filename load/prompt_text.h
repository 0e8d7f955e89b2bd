#pragma once
// Synthetic text of a given length: words of chance, or so many tokens of a given tokenizer.
// Immutable; the same for the same seed.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace quire {
class Tokenizer;
}

namespace quire::load {

class PromptText {
 public:
  // Counts words; with a tokenizer's folder or file, tokens. Throws Failure as Tokenizer::load
  // does.
  explicit PromptText(const std::filesystem::path& tokenizer = {});
  ~PromptText();
  PromptText(PromptText&&) noexcept;

  // Never begins or ends with a blank. In tokens it is exact wherever the tokenizer has a word or
  // a letter of one token that does not merge with its neighbours.
  std::string make(int length, std::uint64_t seed) const;
  bool counts_tokens() const { return tokenizer_ != nullptr; }

 private:
  int tokens_of(const std::string& text) const;

  std::unique_ptr<const Tokenizer> tokenizer_;
  std::vector<int> cost_;  // of each word behind another one, in tokens
  std::string filler_;     // a word of one token behind another one
  std::string opener_;     // of one token alone
};

}  // namespace quire::load
