#pragma once
// Ids in, text out, piece by piece: every piece is whole characters, and all pieces with finish()'s
// are what Tokenizer::decode says of all ids, however they were cut. Belongs to one request.

#include <memory>
#include <span>
#include <string>

#include "base/ids.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

class Detokenizer {
 public:
  // With a prompt, the pieces continue the prompt's own text. The tokenizer must outlive this.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
              std::span<const TokenId> prompt_ids = {});
  ~Detokenizer();
  Detokenizer(Detokenizer&&) noexcept;
  Detokenizer& operator=(Detokenizer&&) noexcept;

  // The text that is certain now; often empty.
  std::string push(TokenId id);
  std::string push(std::span<const TokenId> ids);
  // What was held back, bad bytes as U+FFFD. Nothing may be pushed after it.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
