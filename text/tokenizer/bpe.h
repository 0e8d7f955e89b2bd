#pragma once
// Byte pair encoding: a word's units (characters, or bytes) merge pairwise, the pair that was
// learned first first, until no rule is left.

#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer/bpe_merger.h"
#include "text/tokenizer/scratch_pool.h"
#include "text/tokenizer/string_map.h"
#include "text/tokenizer/token_model.h"
#include "text/tokenizer/word_cache.h"

namespace quire {

class BpeModel final : public TokenModel {
 public:
  BpeModel(const Json& field, bool byte_level);

  void encode(std::string_view text, std::span<const Piece> pieces,
              std::vector<TokenId>& ids) const override;
  const Vocab& vocab() const override { return vocab_; }

 private:
  struct Scratch {
    WordCache cache;
    BpeMerger merger;
    std::vector<TokenId> word_ids;
  };

  void load_units();
  void load_merges(const Json& field);
  // What is wrong with the rule; empty: it has been added.
  std::string add_merge(std::string_view left, std::string_view right, std::uint32_t rank);
  void note_joined(std::string_view token);
  void map_words_to_bytes();

  TokenId token_of(std::string_view word) const;  // the whole word as one token; -1: it is none
  void encode_short(std::string_view text, Piece word, const WordKey& key, WordCache::Entry& entry,
                    Scratch& scratch, std::vector<TokenId>& ids) const;
  void encode_long(std::string_view text, Piece word, Scratch& scratch,
                   std::vector<TokenId>& ids) const;
  void merge_word(std::string_view word, Scratch& scratch) const;
  void units_of(std::string_view word, std::vector<TokenId>& units) const;
  void add_unknown(std::string_view unit, std::optional<TokenId>& unknown,
                   std::vector<TokenId>& units) const;
  bool is_seam(char32_t left, char32_t right) const;

  bool byte_level_;
  bool fuse_unk_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  std::string prefix_;  // of every unit but a word's first
  std::string suffix_;  // of a word's last unit
  std::optional<TokenId> unk_;
  std::array<TokenId, 256> fallback_ids_{};  // of "<0x00>"…; -1: none
  std::array<TokenId, 256> byte_ids_{};      // of single bytes; -1: none
  Vocab vocab_;
  MergeMap merges_;
  bool merges_odd_tokens_ = false;  // a rule takes the unknown token or a byte's token

  StringArena word_bytes_;
  StringMap words_by_bytes_;  // byte_level_: the vocabulary as the plain bytes it stands for

  // Bit h is set if some token has two neighbouring characters that hash to h: between any others
  // nothing ever merges, and a text that comes as one long word can be cut there. Empty: cut
  // nowhere.
  std::vector<std::uint64_t> joined_pairs_;

  // [vocab_.id_limit()] True: the merges of this token's text are known to lead to it.
  mutable std::vector<std::atomic<bool>> merges_to_itself_;
  mutable ScratchPool<Scratch> pool_;
};

}  // namespace quire
