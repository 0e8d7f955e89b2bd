#pragma once
// A model's tokens as byte strings, in tries that are walked together with an automaton. Immutable;
// one for all grammars of a model.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace quire {
class Tokenizer;
}

namespace quire::structured {

// Depth-first: the children of a node follow it, `skip` is the node after the last of them.
class TokenTrie {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;
  struct Node {
    std::uint32_t skip;
    TokenId token;        // -1: no token ends here; more with the same bytes: Vocabulary::next_same
    std::uint16_t depth;  // bytes from the root, this one included
    std::uint8_t byte;
  };

  // `tokens` ascending by bytes, none empty.
  explicit TokenTrie(std::span<const std::pair<std::string_view, TokenId>> tokens);

  std::span<const Node> nodes() const { return nodes_; }
  // The node of a token's first byte.
  std::uint32_t first(std::uint8_t byte) const { return first_[byte]; }
  std::size_t max_depth() const { return max_depth_; }

 private:
  std::vector<Node> nodes_;
  std::array<std::uint32_t, 256> first_;
  std::size_t max_depth_ = 0;
};

class Vocabulary {
 public:
  // Before the text of a special token stands this byte, which no text has: a grammar that names
  // the token allows it, and nothing else does.
  static constexpr char kSpecial = '\xff';

  // `bytes[id]` empty: the token is never allowed.
  Vocabulary(std::vector<std::string> bytes, std::vector<TokenId> end_tokens);
  static std::shared_ptr<const Vocabulary> of(const Tokenizer& tokenizer,
                                              std::span<const TokenId> end_tokens);

  int size() const { return static_cast<int>(bytes_.size()); }
  std::size_t words() const { return (bytes_.size() + 31) / 32; }
  const std::string& bytes(TokenId id) const { return bytes_[static_cast<std::size_t>(id)]; }
  std::span<const TokenId> end_tokens() const { return end_tokens_; }
  const TokenTrie& all() const { return *all_; }
  // Tokens that are nothing but characters which a JSON string takes raw, up to `chars` of them:
  // wherever any such text may come they are allowed without a look, and only `others` is walked.
  std::span<const std::uint32_t> plain(std::uint32_t chars) const;
  std::uint32_t longest_plain() const { return static_cast<std::uint32_t>(plain_.size()); }
  const TokenTrie& others() const { return *others_; }
  // The texts of special tokens, without kSpecial; longer ones first.
  std::span<const std::string> special_texts() const { return special_texts_; }
  bool is_special(TokenId id) const { return bytes(id).starts_with(kSpecial); }
  TokenId next_same(TokenId id) const { return next_same_[static_cast<std::size_t>(id)]; }

 private:
  void find_plain(std::span<const std::pair<std::string_view, TokenId>> sorted);

  std::vector<std::string> bytes_;
  std::vector<TokenId> end_tokens_;
  std::vector<TokenId> next_same_;
  std::vector<std::string> special_texts_;
  std::unique_ptr<const TokenTrie> all_, others_;
  std::vector<std::vector<std::uint32_t>> plain_;  // by their most characters, from 1
};

}  // namespace quire::structured
