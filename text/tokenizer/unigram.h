#pragma once
// Unigram: of all ways to write a word as tokens, the one with the highest sum of scores.

#include <array>
#include <optional>
#include <vector>

#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/scratch_pool.h"
#include "text/tokenizer/token_model.h"
#include "text/tokenizer/word_cache.h"

namespace quire {

class UnigramModel final : public TokenModel {
 public:
  explicit UnigramModel(const Json& field);

  void encode(std::string_view text, std::span<const Piece> pieces,
              std::vector<TokenId>& ids) const override;
  const Vocab& vocab() const override { return vocab_; }

 private:
  // The best way to write the word up to a place.
  struct BestPath {
    double score = 0;
    std::size_t begin = kUnreached;  // of its last token
    TokenId id = -1;
  };
  struct Scratch {
    WordCache cache;
    std::vector<BestPath> paths;  // [bytes + 1]
    std::vector<Piece> tokens;
    std::vector<TokenId> ids;
  };
  static constexpr std::size_t kUnreached = SIZE_MAX;

  void encode_word(std::string_view word, Scratch& scratch) const;
  void find_best_paths(std::string_view word, std::vector<BestPath>& paths) const;
  void add_token(std::string_view token, std::vector<TokenId>& ids) const;

  Vocab vocab_;
  ByteTrie trie_;
  std::vector<double> scores_;  // by id
  std::optional<TokenId> unk_;
  double unk_score_ = 0;
  bool byte_fallback_ = false;
  std::array<TokenId, 256> fallback_ids_{};  // of "<0x00>"…; -1: none

  mutable ScratchPool<Scratch> pool_;
};

}  // namespace quire
