#pragma once
// Tokens that stand beside the model's vocabulary: found in the text before anything else is.
// Immutable.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/tokenizer/byte_trie.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/vocab.h"

namespace quire {

struct AddedToken {
  std::string content;
  bool single_word = false;  // only between characters that belong to no word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // … behind it
  bool normalized = false;   // is looked for in the normalized text
  bool special = false;
  std::string normalized_content;  // what is looked for then, and what it decodes to
};

AddedToken read_added_token(const Json& field);

class AddedTokens {
 public:
  // `list`: the file's "added_tokens"; absent: there are none. `more` are added after them, where
  // they are not among them; those may be special only here.
  AddedTokens(const std::optional<Json>& list, const std::vector<AddedToken>& more,
              const Vocab& vocab, const Normalizer* normalizer);

  struct Part {
    std::string_view text;
    TokenId id = -1;  // -1: just text
  };
  // Cuts the text at the tokens that are looked for before or after normalization. Parts cover the
  // text from left to right; none is empty.
  std::vector<Part> split(std::string_view text, bool after_normalization) const;

  const AddedToken* find(TokenId id) const;
  std::optional<TokenId> find(std::string_view content) const;
  bool is_special(std::string_view content) const {
    return special_.contains(std::string(content));
  }
  TokenId id_limit() const { return id_limit_; }  // highest id + 1

 private:
  void add(AddedToken token, const Vocab& vocab, const Normalizer* normalizer, TokenId& next_id);
  TokenId id_for(std::string_view content, const Vocab& vocab, TokenId& next_id) const;
  void build_tries();

  std::unordered_map<TokenId, AddedToken> by_id_;
  std::unordered_map<std::string, TokenId> ids_;
  std::unordered_set<std::string> special_;
  ByteTrie raw_, normalized_;
  bool has_raw_ = false, has_normalized_ = false;
  TokenId id_limit_ = 0;
};

}  // namespace quire
