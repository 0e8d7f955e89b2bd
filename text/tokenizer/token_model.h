#pragma once
// What turns a word into tokens: BPE, Unigram, WordPiece or WordLevel. Immutable; any number of
// threads may encode at once.

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer/vocab.h"

namespace quire {

class Json;

// A stretch of a text, in bytes.
struct Piece {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint32_t size() const { return end - begin; }
  std::string_view of(std::string_view text) const { return text.substr(begin, end - begin); }
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of each piece of `text`, whole characters unless it was loaded for bytes.
  virtual void encode(std::string_view text, std::span<const Piece> pieces,
                      std::vector<TokenId>& ids) const = 0;
  virtual const Vocab& vocab() const = 0;
};

// `byte_level`: the words come as plain bytes, not in the byte-level alphabet that the vocabulary
// is written in. Possible where takes_plain_bytes() says so.
std::unique_ptr<TokenModel> load_model(const Json& field, bool byte_level);
bool takes_plain_bytes(const Json& field);

}  // namespace quire
