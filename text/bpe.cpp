#include "text/bpe.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "text/utf8.h"

namespace quire {
namespace {

constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
// Up to here, looking through all ranks for each merge is faster than a queue.
constexpr std::size_t kShortWord = 48;  // units

}  // namespace

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
  units_of(word, scratch.units);
  if (scratch.units.size() <= kShortWord) {
    merge_short(scratch);
  } else {
    merge_with_queue(scratch);
  }
  if (known != nullptr && scratch.word_ids.size() == 1 && scratch.word_ids[0] == token &&
      suffix_.empty()) {
    known->store(true, std::memory_order_relaxed);
  }
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

void BpeModel::merge_short(Scratch& scratch) const {
  auto& units = scratch.units;
  auto& ranks = scratch.ranks;
  const auto rank_at = [&](std::size_t i) {
    return i + 1 < units.size() ? merges_.find(units[i], units[i + 1]).rank : kNoRank;
  };
  ranks.resize(units.size());
  for (std::size_t i = 0; i < units.size(); ++i) ranks[i] = rank_at(i);
  while (units.size() > 1) {
    const auto best = std::min_element(ranks.begin(), ranks.end());
    if (*best == kNoRank) break;
    const auto i = static_cast<std::size_t>(best - ranks.begin());
    units[i] = merges_.find(units[i], units[i + 1]).id;
    units.erase(units.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ranks.erase(ranks.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ranks[i] = rank_at(i);
    if (i > 0) ranks[i - 1] = rank_at(i - 1);
  }
  scratch.word_ids = units;
}

void BpeModel::merge_with_queue(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;  // a heap of rank << 32 | position, least first
  const auto later = std::greater<std::uint64_t>();
  const auto count = static_cast<std::int32_t>(scratch.units.size());
  symbols.clear();
  queue.clear();
  for (std::int32_t i = 0; i < count; ++i) {
    symbols.push_back(
        {scratch.units[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  }
  const auto rule_at = [&](std::int32_t i) {
    const Symbol& symbol = symbols[static_cast<std::size_t>(i)];
    if (symbol.id < 0 || symbol.next < 0) return MergeRule{};
    return merges_.find(symbol.id, symbols[static_cast<std::size_t>(symbol.next)].id);
  };
  const auto entry_of = [](std::uint32_t rank, std::int32_t i) {
    return static_cast<std::uint64_t>(rank) << 32 | static_cast<std::uint32_t>(i);
  };
  const auto enqueue = [&](std::int32_t i) {
    const MergeRule rule = rule_at(i);
    if (rule.rank == kNoRank) return;
    queue.push_back(entry_of(rule.rank, i));
    std::push_heap(queue.begin(), queue.end(), later);
  };
  for (std::int32_t i = 0; i < count; ++i) {
    if (const MergeRule rule = rule_at(i); rule.rank != kNoRank)
      queue.push_back(entry_of(rule.rank, i));
  }
  std::make_heap(queue.begin(), queue.end(), later);

  while (!queue.empty()) {
    const std::uint64_t top = queue.front();
    std::pop_heap(queue.begin(), queue.end(), later);
    queue.pop_back();
    const auto i = static_cast<std::int32_t>(top & 0xFFFFFFFF);
    const MergeRule rule = rule_at(i);
    if (rule.rank != top >> 32) continue;  // one of the two has merged since
    Symbol& left = symbols[static_cast<std::size_t>(i)];
    Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    left.id = rule.id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = i;
    if (left.previous >= 0) enqueue(left.previous);
    enqueue(i);
  }
  scratch.word_ids.clear();
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) scratch.word_ids.push_back(symbol.id);
  }
}

bool BpeModel::is_seam(char32_t left, char32_t right) const {
  const std::uint64_t hash = mix_bits(left, right) & (joined_pairs_.size() * 64 - 1);
  return (joined_pairs_[hash / 64] >> (hash % 64) & 1) == 0;
}

}  // namespace quire
