#include "text/tokenizer/vocab.h"

#include <algorithm>
#include <cstring>

#include "base/json.h"

namespace quire {

std::string_view StringArena::keep(std::string_view text) {
  constexpr std::size_t kChunk = 1 << 16;
  if (text.size() > left_ || next_ == nullptr) {
    left_ = std::max(kChunk, text.size());
    next_ = chunks_.emplace_back(std::make_unique<char[]>(left_)).get();
  }
  char* const place = next_;
  std::memcpy(place, text.data(), text.size());
  next_ += text.size();
  left_ -= text.size();
  return {place, text.size()};
}

Vocab Vocab::from_object(const Json& field) {
  const auto tokens = field.members();
  Vocab vocab(tokens.size());
  for (const auto [token, id] : tokens) {
    vocab.add(token, static_cast<TokenId>(id.as_integer({0, kMaxTokenId})));
  }
  return vocab;
}

void Vocab::add(std::string_view token, TokenId id) {
  const std::string_view kept = arena_.keep(token);
  ids_.assign(kept, id);
  if (id >= id_limit()) tokens_.resize(static_cast<std::size_t>(id) + 1);
  tokens_[static_cast<std::size_t>(id)] = kept;
}

}  // namespace quire
