#include "text/tokenizer/detokenizer.h"

#include <algorithm>

#include "text/tokenizer/tokenizer_parts.h"

namespace quire {

struct Detokenizer::State {
  const Tokenizer::Parts& tokenizer;
  bool skip_special_tokens;
  DecodeChain chain;
  std::string told;  // the end of the prompt's text that the chain still held back

  State(const Tokenizer::Parts& parts, bool skip)
      : tokenizer(parts), skip_special_tokens(skip), chain(parts.decoders) {}

  void push(TokenId id) {
    const auto& piece = tokenizer.piece(id);
    if (piece.known() && !(skip_special_tokens && piece.special)) chain.push(piece.token);
  }

  // What came out of the chain, without what the prompt's text ended with.
  std::string take() {
    std::string text = chain.take();
    if (told.empty() || text.empty()) return text;
    const std::size_t same = std::min(told.size(), text.size());
    if (text.compare(0, same, told, 0, same) == 0) {
      told.erase(0, same);
      text.erase(0, same);
    } else {
      told.clear();  // the new tokens completed a character that the prompt broke off
    }
    return text;
  }
};

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
                         std::span<const TokenId> prompt_ids)
    : state_(std::make_unique<State>(*tokenizer.parts_, skip_special_tokens)) {
  if (prompt_ids.empty()) return;
  for (const TokenId id : prompt_ids) state_->push(id);
  const std::size_t certain = state_->chain.take().size();
  if (!state_->chain.holds_back()) return;
  State all(*tokenizer.parts_, skip_special_tokens);
  for (const TokenId id : prompt_ids) all.push(id);
  all.chain.finish();
  state_->told = all.chain.take().substr(certain);
}

Detokenizer::~Detokenizer() = default;
Detokenizer::Detokenizer(Detokenizer&&) noexcept = default;
Detokenizer& Detokenizer::operator=(Detokenizer&&) noexcept = default;

std::string Detokenizer::push(TokenId id) {
  state_->push(id);
  return state_->take();
}

std::string Detokenizer::push(std::span<const TokenId> ids) {
  for (const TokenId id : ids) state_->push(id);
  return state_->take();
}

std::string Detokenizer::finish() {
  state_->chain.finish();
  return state_->take();
}

}  // namespace quire
