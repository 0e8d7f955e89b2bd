#pragma once
// WordPiece: the longest token that a word starts with, then the longest continuation, and so on;
// and WordLevel: a word is a token or unknown.

#include <optional>
#include <string>

#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/token_model.h"

namespace quire {

class WordPieceModel final : public TokenModel {
 public:
  explicit WordPieceModel(const Json& field);
  void encode(std::string_view text, std::span<const Piece> pieces,
              std::vector<TokenId>& ids) const override;
  const Vocab& vocab() const override { return vocab_; }

 private:
  bool encode_word(std::string_view word, std::vector<TokenId>& ids) const;

  Vocab vocab_;
  ByteTrie trie_;
  ByteTrie::Node continuation_;  // after the prefix of continuations; kNone: there are none
  std::optional<TokenId> unk_;
  std::size_t max_chars_;  // longer words are unknown
};

class WordLevelModel final : public TokenModel {
 public:
  explicit WordLevelModel(const Json& field);
  void encode(std::string_view text, std::span<const Piece> pieces,
              std::vector<TokenId>& ids) const override;
  const Vocab& vocab() const override { return vocab_; }

 private:
  Vocab vocab_;
  std::optional<TokenId> unk_;
};

}  // namespace quire
