#pragma once
// What a tokenizer is made of. For tokenizer*.cpp and detokenizer.cpp only.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/token_model.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

struct Tokenizer::Parts {
  std::unique_ptr<Normalizer> normalizer;  // may be null
  std::vector<std::unique_ptr<PreTokenizer>> pre_tokenizers;
  std::unique_ptr<TokenModel> model;
  std::unique_ptr<AddedTokens> added;
  std::unique_ptr<PostProcessor> post_processor;  // may be null
  Decoders decoders;
  std::map<std::string, std::string, std::less<>> special_strings;

  // What decoding sees of an id.
  struct Piece {
    std::string_view token;  // data() is null: no such id
    bool special = false;
    bool known() const { return token.data() != nullptr; }
  };
  std::vector<Piece> pieces;        // by id
  bool byte_level = false;          // some decoder reads the byte-level alphabet
  bool byte_fallback = false;       // … "<0xNN>"
  std::optional<TokenId> ordinary;  // some token that is a letter: a neighbour to decode next to

  const Piece& piece(TokenId id) const {
    static constexpr Piece kNone;
    return id >= 0 && static_cast<std::size_t>(id) < pieces.size()
               ? pieces[static_cast<std::size_t>(id)]
               : kNone;
  }
};

}  // namespace quire
