#include "text/tokenizer/added_tokens.h"

#include <algorithm>

#include "base/json.h"
#include "base/utf8.h"
#include "text/unicode.h"

namespace quire {
namespace {

bool starts_with_word(std::string_view text) {
  const char* at = text.data();
  return !text.empty() && is_word(utf8_next(at));
}

bool ends_with_word(std::string_view text) {
  const char* at = text.data() + text.size();
  return !text.empty() && is_word(utf8_previous(at));
}

// Where the white space that ends at `end`, and does not reach before `begin`, begins.
std::size_t space_before(std::string_view text, std::size_t begin, std::size_t end) {
  const char* at = text.data() + end;
  for (const char* previous = at; at > text.data() + begin;) {
    if (!is_white_space(utf8_previous(previous))) break;
    at = previous;
  }
  return static_cast<std::size_t>(at - text.data());
}

std::size_t space_behind(std::string_view text, std::size_t begin) {
  const char* at = text.data() + begin;
  for (const char* next = at; next < text.data() + text.size();) {
    if (!is_white_space(utf8_next(next))) break;
    at = next;
  }
  return static_cast<std::size_t>(at - text.data());
}

}  // namespace

AddedToken read_added_token(const Json& field) {
  const bool special = field.boolean({"special"}).value_or(false);
  return {
      .content = field.need_text("content"),
      .single_word = field.boolean({"single_word"}).value_or(false),
      .lstrip = field.boolean({"lstrip"}).value_or(false),
      .rstrip = field.boolean({"rstrip"}).value_or(false),
      .normalized = field.boolean({"normalized"}).value_or(!special),
      .special = special,
      .normalized_content = {},
  };
}

AddedTokens::AddedTokens(const std::optional<Json>& list, const std::vector<AddedToken>& more,
                         const Vocab& vocab, const Normalizer* normalizer) {
  // The library numbers tokens that the vocabulary lacks in their order, whatever the file says.
  auto next_id = static_cast<TokenId>(vocab.size());
  if (list) {
    for (const Json item : list->items()) {
      item.at("id").as_integer({0, kMaxTokenId});
      if (next_id > kMaxTokenId) item.fail("there are too many tokens");
      add(read_added_token(item), vocab, normalizer, next_id);
    }
  }
  for (const AddedToken& token : more) {
    if (next_id <= kMaxTokenId && !find(token.content)) add(token, vocab, normalizer, next_id);
    if (token.special) special_.insert(token.content);
  }
  build_tries();
}

void AddedTokens::add(AddedToken token, const Vocab& vocab, const Normalizer* normalizer,
                      TokenId& next_id) {
  if (token.content.empty()) return;
  const TokenId id = id_for(token.content, vocab, next_id);
  token.normalized_content = token.content;
  if (token.normalized && normalizer != nullptr) {
    NormalizedText text{token.content};
    normalizer->apply(text);
    token.normalized_content = std::move(text.text);
  }
  ids_[token.content] = id;
  if (token.special) special_.insert(token.content);
  id_limit_ = std::max(id_limit_, id + 1);
  by_id_[id] = std::move(token);
}

TokenId AddedTokens::id_for(std::string_view content, const Vocab& vocab, TokenId& next_id) const {
  if (const auto id = find(content)) return *id;
  if (const auto id = vocab.find(content)) return *id;
  return next_id++;
}

void AddedTokens::build_tries() {
  std::vector<std::pair<std::string_view, std::int32_t>> raw, normalized;
  for (const auto& [id, token] : by_id_) {
    if (!token.normalized) {
      raw.emplace_back(token.content, id);
    } else if (!token.normalized_content.empty()) {
      normalized.emplace_back(token.normalized_content, id);
    }
  }
  has_raw_ = !raw.empty();
  has_normalized_ = !normalized.empty();
  // Of two that look alike the one with the higher id is found.
  std::sort(raw.begin(), raw.end());
  std::sort(normalized.begin(), normalized.end());
  raw_ = ByteTrie(std::move(raw));
  normalized_ = ByteTrie(std::move(normalized));
}

std::vector<AddedTokens::Part> AddedTokens::split(std::string_view text,
                                                  bool after_normalization) const {
  std::vector<Part> parts;
  const ByteTrie& trie = after_normalization ? normalized_ : raw_;
  const bool any = after_normalization ? has_normalized_ : has_raw_;
  std::size_t done = 0;
  std::size_t space_end = 0;  // of the white space that was looked through last
  for (std::size_t at = 0; any && at < text.size();) {
    at = trie.first_start(text, at);
    if (at == text.npos) break;
    const auto match = trie.longest_prefix(text.substr(at));
    if (match.length == 0) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + match.length;
    at = end;  // a match that is turned down still hides those that overlap it
    const AddedToken& token = by_id_.at(match.value);
    if (token.single_word &&
        (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) {
      continue;
    }
    if (token.lstrip) begin = std::max(done, space_before(text, std::min(done, begin), begin));
    if (token.rstrip) end = space_end = end < space_end ? space_end : space_behind(text, end);
    if (begin >= end) continue;  // a token of white space that the one before has taken along
    if (done < begin) parts.push_back({text.substr(done, begin - done)});
    parts.push_back({text.substr(begin, end - begin), match.value});
    done = end;
  }
  if (done < text.size()) parts.push_back({text.substr(done)});
  return parts;
}

const AddedToken* AddedTokens::find(TokenId id) const {
  const auto place = by_id_.find(id);
  return place == by_id_.end() ? nullptr : &place->second;
}

std::optional<TokenId> AddedTokens::find(std::string_view content) const {
  const auto place = ids_.find(std::string(content));
  return place == ids_.end() ? std::nullopt : std::optional(place->second);
}

}  // namespace quire
