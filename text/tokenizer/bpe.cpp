#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"

namespace quire {
void BpeModel::encode(std::string_view text, std::span<const Piece> pieces,
                      std::vector<TokenId>& ids) const {
  ScratchPool<Scratch>::Loan loan(pool_);
  Scratch& scratch = *loan;
  // Some words at a time, so that their places in the cache are on their way before they are
  // needed.
  std::array<WordKey, 16> keys;
  std::array<WordCache::Entry*, 16> places;
  while (!pieces.empty()) {
    const auto batch = pieces.first(std::min(keys.size(), pieces.size()));
    pieces = pieces.subspan(batch.size());
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (batch[i].size() > WordKey::kMaxSize) continue;
      keys[i].assign(text, batch[i]);
      places[i] = &scratch.cache.place_of(keys[i]);
      __builtin_prefetch(places[i]);
    }
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (batch[i].size() <= WordKey::kMaxSize) {
        encode_short(text, batch[i], keys[i], *places[i], scratch, ids);
      } else {
        encode_long(text, batch[i], scratch, ids);
      }
    }
  }
}

TokenId BpeModel::token_of(std::string_view word) const {
  return byte_level_ ? words_by_bytes_.find(word) : vocab_.find(word).value_or(-1);
}

void BpeModel::encode_short(std::string_view text, Piece word, const WordKey& key,
                            WordCache::Entry& entry, Scratch& scratch,
                            std::vector<TokenId>& ids) const {
  if (entry.holds(key, word.size())) return entry.append_to(ids);
  merge_word(word.of(text), scratch);
  ids.insert(ids.end(), scratch.word_ids.begin(), scratch.word_ids.end());
  entry.put(key, word.size(), scratch.word_ids);
}

void BpeModel::encode_long(std::string_view text, Piece word, Scratch& scratch,
                           std::vector<TokenId>& ids) const {
  const auto encode_part = [&](Piece part) {
    if (part.size() <= WordKey::kMaxSize) {
      WordKey key;
      key.assign(text, part);
      return encode_short(text, part, key, scratch.cache.place_of(key), scratch, ids);
    }
    merge_word(part.of(text), scratch);
    ids.insert(ids.end(), scratch.word_ids.begin(), scratch.word_ids.end());
  };
  if (joined_pairs_.empty()) return encode_part(word);
  Piece part{word.begin, word.begin};
  char32_t previous = 0;
  for_each_char(word.of(text), [&](char32_t c, std::string_view bytes) {
    if (part.size() > 0 && is_seam(previous, c)) {
      encode_part(part);
      part.begin = part.end;
    }
    part.end += static_cast<std::uint32_t>(bytes.size());
    previous = c;
  });
  encode_part(part);
}

void BpeModel::merge_word(std::string_view word, Scratch& scratch) const {
  // Most words are a token that their merges lead to, which needs to be found out once only.
  const TokenId token = token_of(word);
  auto* const known = token < 0 ? nullptr : &merges_to_itself_[static_cast<std::size_t>(token)];
  if (known != nullptr && (ignore_merges_ || known->load(std::memory_order_relaxed))) {
    scratch.word_ids.assign(1, token);
    return;
  }
  units_of(word, scratch.word_ids);
  scratch.merger.merge(scratch.word_ids, merges_);
  const bool merged = scratch.word_ids.size() == 1 && scratch.word_ids[0] == token;
  if (known != nullptr && merged && suffix_.empty()) known->store(true, std::memory_order_relaxed);
}

void BpeModel::units_of(std::string_view word, std::vector<TokenId>& units) const {
  units.clear();
  std::optional<TokenId> unknown;  // not yet added: the next unknown unit may fuse with it
  for (std::size_t at = 0, length = 0; at < word.size(); at += length) {
    length = byte_level_ ? 1 : utf8_length(word[at]);
    std::string_view unit = word.substr(at, length);
    std::string spelled;
    const bool with_prefix = at > 0 && !prefix_.empty();
    const bool with_suffix = at + length == word.size() && !suffix_.empty();
    if (with_prefix || with_suffix) {
      spelled.append(with_prefix ? prefix_ : "").append(unit).append(with_suffix ? suffix_ : "");
      unit = spelled;
    }
    const TokenId id = unit.size() == 1 ? byte_ids_[static_cast<unsigned char>(unit[0])]
                                        : vocab_.find(unit).value_or(-1);
    if (id < 0) {
      add_unknown(unit, unknown, units);
      continue;
    }
    if (unknown) units.push_back(*unknown);
    unknown.reset();
    units.push_back(id);
  }
  if (unknown) units.push_back(*unknown);
}

void BpeModel::add_unknown(std::string_view unit, std::optional<TokenId>& unknown,
                           std::vector<TokenId>& units) const {
  if (byte_fallback_) {
    const auto id_of = [this](char b) { return fallback_ids_[static_cast<unsigned char>(b)]; };
    if (std::all_of(unit.begin(), unit.end(), [&](char b) { return id_of(b) >= 0; })) {
      // The library leaves an unknown unit that waits where it is: it comes after these bytes.
      for (const char b : unit) units.push_back(id_of(b));
      return;
    }
  }
  if (!unk_) return;
  if (unknown && !fuse_unk_) units.push_back(*unknown);
  unknown = unk_;
}

bool BpeModel::is_seam(char32_t left, char32_t right) const {
  const std::uint64_t hash = mix_bits(left, right) & (joined_pairs_.size() * 64 - 1);
  return (joined_pairs_[hash / 64] >> (hash % 64) & 1) == 0;
}

}  // namespace quire
