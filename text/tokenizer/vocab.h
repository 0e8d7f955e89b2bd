#pragma once
// The tokens of a model by id, and back.

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer/string_map.h"

namespace quire {

class Json;

inline constexpr TokenId kMaxTokenId = (1 << 22) - 1;

// Keeps copies of strings where they never move.
class StringArena {
 public:
  std::string_view keep(std::string_view text);

 private:
  std::vector<std::unique_ptr<char[]>> chunks_;
  std::size_t left_ = 0;
  char* next_ = nullptr;
};

class Vocab {
 public:
  explicit Vocab(std::size_t expected = 0) : ids_(expected) { tokens_.reserve(expected); }
  static Vocab from_object(const Json& field);  // {token: id}

  // The last id of a token and the last token of an id stay. `id` is at most kMaxTokenId.
  void add(std::string_view token, TokenId id);

  std::optional<TokenId> find(std::string_view token) const {
    const TokenId id = ids_.find(token);
    return id < 0 ? std::nullopt : std::optional(id);
  }
  bool has(TokenId id) const {
    return id >= 0 && id < id_limit() && tokens_[static_cast<std::size_t>(id)].data() != nullptr;
  }
  // As the file spells it; empty if there is no such id.
  std::string_view token(TokenId id) const {
    return has(id) ? tokens_[static_cast<std::size_t>(id)] : std::string_view();
  }
  std::size_t size() const { return ids_.size(); }                           // different tokens
  TokenId id_limit() const { return static_cast<TokenId>(tokens_.size()); }  // highest id + 1

 private:
  StringArena arena_;
  StringMap ids_;
  std::vector<std::string_view> tokens_;
};

}  // namespace quire
