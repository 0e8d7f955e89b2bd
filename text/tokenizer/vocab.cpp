#include "text/tokenizer/vocab.h"

#include <algorithm>
#include <cstring>

#include "text/tokenizer/json_field.h"

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

Vocab Vocab::from_object(const JsonField& field) {
  const auto object = field.object();
  Vocab vocab(object.size());
  for (const auto [token, value] : object) {
    std::int64_t id = -1;
    if (value.get(id) || id < 0 || id > kMaxTokenId)
      field.child(token, value).integer(0, kMaxTokenId);
    vocab.add(token, static_cast<TokenId>(id));
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
