#pragma once
// Which tokens may come next. What a lexeme allows by itself depends on nothing beneath it and is
// worked out once per lexeme state, for all grammars of a vocabulary (LexemeMaskCache); tokens that
// outrun the lexeme are then followed on the stack, from the nodes where it may end.

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/structured/grammar/parser_states.h"
#include "engine/structured/vocabulary.h"

namespace quire::structured {

// What one lexeme state allows.
struct LexemeMask {
  std::uint32_t plain = 0;  // all plain tokens of up to this many characters; 0: none
  const TokenTrie* trie = nullptr;
  std::vector<std::uint32_t> bits;   // dense, or empty and
  std::vector<TokenId> tokens;       // few
  std::vector<std::uint32_t> exits;  // nodes of `trie`, inside of a token, where the lexeme may end
};

// Shared by the grammars of one vocabulary; thread-safe. Forgets all when full.
class LexemeMaskCache {
 public:
  explicit LexemeMaskCache(std::size_t max_bytes = 64u << 20) : max_bytes_(max_bytes) {}
  std::shared_ptr<const LexemeMask> find(const RegexHash& hash);
  void put(const RegexHash& hash, std::shared_ptr<const LexemeMask> mask);

 private:
  struct HashOf {
    std::size_t operator()(const RegexHash& hash) const { return hash.low; }
  };
  std::mutex mutex_;
  std::unordered_map<RegexHash, std::shared_ptr<const LexemeMask>, HashOf> masks_;
  std::size_t bytes_ = 0;
  std::size_t max_bytes_;
};

class TokenMasks {
 public:
  TokenMasks(std::shared_ptr<const Vocabulary> vocabulary, std::shared_ptr<LexemeMaskCache> shared,
             RegexStore& store, ParserStates& states, Meter& meter);

  // One bit per token id, 1: its bytes may come next. Of end tokens it knows nothing.
  void fill(ParserState state, std::span<std::uint32_t> words);

 private:
  struct Kept {  // the whole mask of a state, dense or as a list
    std::vector<std::uint32_t> bits;
    std::vector<TokenId> tokens;
  };

  void compute(ParserState state, std::span<std::uint32_t> words);
  const LexemeMask& lexeme_mask(RegexId lexeme);
  LexemeMask walk_lexeme(RegexId lexeme);
  std::uint32_t plain_chars(RegexId lexeme);
  RegexId after_one_char(RegexId lexeme);
  RegexId find_after_one_char(RegexId lexeme);
  bool takes_all_text(RegexId lexeme);
  void follow(const TokenTrie& trie, std::uint32_t node, ParserState state,
              std::span<std::uint32_t> words);
  void set(TokenId token, std::span<std::uint32_t> words) const;
  void keep(ParserState state, std::span<const std::uint32_t> words);

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::shared_ptr<LexemeMaskCache> shared_;
  RegexStore& store_;
  ParserStates& states_;
  Meter& meter_;
  RegexId safe_char_;
  std::unordered_map<RegexId, std::shared_ptr<const LexemeMask>> lexemes_;
  std::unordered_map<RegexId, std::uint32_t> plain_chars_;
  std::unordered_map<RegexId, RegexId> after_one_char_;
  ByteSet safe_first_;
  std::unordered_map<ParserState, Kept> kept_;  // of states that were asked for twice
  std::unordered_set<ParserState> seen_;
  std::size_t kept_bytes_ = 0;
  std::vector<RegexId> lexeme_way_;
  std::vector<ParserState> state_way_;
};

}  // namespace quire::structured
