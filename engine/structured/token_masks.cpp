#include "engine/structured/token_masks.h"

#include <algorithm>
#include <bit>

#include "engine/structured/regex/char_set.h"

namespace quire::structured {
namespace {

constexpr std::size_t kKeptBytes = 16u << 20;
constexpr std::size_t kFewTokens = 256;
constexpr std::uint32_t kMixed = 0xffffffff;  // also for a RegexId: characters are not alike
constexpr std::uint32_t kEndless = 0xfffffffe;
constexpr std::uint32_t kBetweenCounts = 64;  // nodes of a trie whose successors are mostly known

CharSet safe_chars() {
  CharSet set = CharSet::of(0, 0x1f);
  set.add('"', '"');
  set.add('\\', '\\');
  return set.complement();
}

}  // namespace

std::shared_ptr<const LexemeMask> LexemeMaskCache::find(const RegexHash& hash) {
  const std::lock_guard lock(mutex_);
  const auto found = masks_.find(hash);
  return found == masks_.end() ? nullptr : found->second;
}

void LexemeMaskCache::put(const RegexHash& hash, std::shared_ptr<const LexemeMask> mask) {
  const std::size_t bytes =
      200 + 4 * (mask->bits.size() + mask->tokens.size() + mask->exits.size());
  decltype(masks_) forgotten;  // freed once nobody waits for the lock
  const std::lock_guard lock(mutex_);
  if (bytes_ + bytes > max_bytes_) {
    forgotten.swap(masks_);
    bytes_ = 0;
  }
  if (masks_.emplace(hash, std::move(mask)).second) bytes_ += bytes;
}

TokenMasks::TokenMasks(std::shared_ptr<const Vocabulary> vocabulary,
                       std::shared_ptr<LexemeMaskCache> shared, RegexStore& store,
                       ParserStates& states, Meter& meter)
    : vocabulary_(std::move(vocabulary)),
      shared_(std::move(shared)),
      store_(store),
      states_(states),
      meter_(meter),
      safe_char_(chars_regex(store, safe_chars(), Spelling::plain)),
      safe_first_(store.first_bytes(safe_char_)),
      lexeme_way_(vocabulary_->all().max_depth() + 1),
      state_way_(vocabulary_->all().max_depth() + 1) {}

void TokenMasks::set(TokenId token, std::span<std::uint32_t> words) const {
  for (; token >= 0; token = vocabulary_->next_same(token)) {
    words[static_cast<std::size_t>(token) / 32] |= 1u << static_cast<std::size_t>(token) % 32;
  }
}

void TokenMasks::fill(ParserState state, std::span<std::uint32_t> words) {
  if (const auto kept = kept_.find(state); kept != kept_.end()) {
    if (!kept->second.bits.empty()) {
      std::copy(kept->second.bits.begin(), kept->second.bits.end(), words.begin());
      return;
    }
    std::fill(words.begin(), words.end(), 0);
    for (const TokenId token : kept->second.tokens) {
      words[static_cast<std::size_t>(token) / 32] |= 1u << static_cast<std::size_t>(token) % 32;
    }
    return;
  }
  std::fill(words.begin(), words.end(), 0);
  compute(state, words);
  if (!seen_.insert(state).second) keep(state, words);
}

void TokenMasks::keep(ParserState state, std::span<const std::uint32_t> words) {
  std::size_t count = 0;
  for (const std::uint32_t word : words) count += static_cast<std::size_t>(std::popcount(word));
  Kept kept;
  if (count > kFewTokens) {
    kept.bits.assign(words.begin(), words.end());
  } else {
    kept.tokens.reserve(count);
    for (std::size_t i = 0; i < words.size(); ++i) {
      for (std::uint32_t left = words[i]; left != 0; left &= left - 1) {
        kept.tokens.push_back(static_cast<TokenId>(i * 32) + std::countr_zero(left));
      }
    }
  }
  const std::size_t bytes = 100 + 4 * (kept.bits.size() + kept.tokens.size());
  if (kept_bytes_ + bytes > kKeptBytes) {
    kept_.clear();
    kept_bytes_ = 0;
  }
  kept_bytes_ += bytes;
  kept_.emplace(state, std::move(kept));
}

void TokenMasks::compute(ParserState state, std::span<std::uint32_t> words) {
  const auto count = states_.threads(state).size();
  for (std::size_t i = 0; i < count; ++i) {
    const ParserStates::Thread thread = states_.threads(state)[i];
    const LexemeMask& mask = lexeme_mask(thread.rest);
    if (mask.plain > 0) {
      const auto plain = vocabulary_->plain(mask.plain);
      for (std::size_t w = 0; w < plain.size(); ++w) words[w] |= plain[w];
    }
    for (std::size_t w = 0; w < mask.bits.size(); ++w) words[w] |= mask.bits[w];
    for (const TokenId token : mask.tokens) set(token, words);
    // Where a list goes on may depend on the item's text: its end is the end of a token.
    if (mask.exits.empty() || states_.remembers(thread.stack)) continue;
    const ParserState after = states_.after(thread.stack);
    if (after == kDead) continue;
    for (const std::uint32_t node : mask.exits) follow(*mask.trie, node, after, words);
  }
}

// Beneath `at`, with the parser in `state` there.
void TokenMasks::follow(const TokenTrie& trie, std::uint32_t at, ParserState state,
                        std::span<std::uint32_t> words) {
  const auto nodes = trie.nodes();
  const std::uint32_t end = nodes[at].skip;
  state_way_[nodes[at].depth] = state;
  meter_.count();
  for (std::uint32_t i = at + 1; i < end;) {
    if ((i - at) % kBetweenCounts == 0) meter_.count(kBetweenCounts / 4);
    const TokenTrie::Node& node = nodes[i];
    const ParserState next = states_.step(state_way_[node.depth - 1u], node.byte);
    if (next == kDead) {
      i = node.skip;
      continue;
    }
    if (node.token >= 0) set(node.token, words);
    state_way_[node.depth] = next;
    ++i;
  }
}

const LexemeMask& TokenMasks::lexeme_mask(RegexId lexeme) {
  auto& slot = lexemes_[lexeme];
  if (slot == nullptr) {
    const RegexHash hash = store_.hash(lexeme);
    slot = shared_->find(hash);
    if (slot == nullptr) {
      auto made = std::make_shared<const LexemeMask>(walk_lexeme(lexeme));
      shared_->put(hash, made);
      lexemes_[lexeme] = made;
      return *made;
    }
  }
  return *slot;
}

LexemeMask TokenMasks::walk_lexeme(RegexId lexeme) {
  LexemeMask mask;
  mask.plain = std::min(plain_chars(lexeme), vocabulary_->longest_plain());
  mask.trie = mask.plain == 0 ? &vocabulary_->all() : &vocabulary_->others();
  const auto nodes = mask.trie->nodes();
  const ByteSet first = store_.first_bytes(lexeme);
  lexeme_way_[0] = lexeme;
  std::uint32_t visited = 0;
  first.for_each([&](std::uint8_t byte) {
    const std::uint32_t from = mask.trie->first(byte);
    if (from == TokenTrie::kNone) return;
    const std::uint32_t end = nodes[from].skip;
    for (std::uint32_t i = from; i < end;) {
      if (++visited % kBetweenCounts == 0) meter_.count(kBetweenCounts / 4);
      const TokenTrie::Node& node = nodes[i];
      const RegexId next = store_.step(lexeme_way_[node.depth - 1u], node.byte);
      if (next == kNothing) {
        i = node.skip;
        continue;
      }
      if (node.token >= 0) mask.tokens.push_back(node.token);
      if (store_.nullable(next) && node.skip > i + 1) mask.exits.push_back(i);
      if (store_.finished(next)) {
        i = node.skip;
        continue;
      }
      lexeme_way_[node.depth] = next;
      ++i;
    }
  });
  if (mask.tokens.size() > kFewTokens * 4) {
    mask.bits.resize(vocabulary_->words());
    for (const TokenId token : mask.tokens) set(token, mask.bits);
    mask.tokens = {};
  }
  return mask;
}

// n: every text of up to n safe characters keeps the lexeme alive, and no longer one does
// (kEndless: every longer one does too). 0: there is no such n.
std::uint32_t TokenMasks::plain_chars(RegexId lexeme) {
  std::vector<RegexId> way;
  std::uint32_t chars = kEndless;
  for (RegexId at = lexeme;; at = way.empty() ? at : after_one_char(way.back())) {
    if (const auto known = plain_chars_.find(at); known != plain_chars_.end()) {
      chars = known->second;
      break;
    }
    // Longer than any token: what comes later does not matter here.
    if (way.size() > vocabulary_->longest_plain()) return kEndless;
    const RegexId next = after_one_char(at);
    if (next == kNothing || next == kMixed || next == at) {
      chars = next == kNothing ? 0 : next == at || takes_all_text(at) ? kEndless : kMixed;
      plain_chars_[at] = chars;
      break;
    }
    way.push_back(at);
  }
  for (auto it = way.rbegin(); it != way.rend(); ++it) {
    if (chars < kEndless) ++chars;
    plain_chars_[*it] = chars;
  }
  return chars == kMixed ? 0 : chars;
}

// True when no text of safe characters is ever refused, though the states differ: keys that are not
// one of some names, say.
bool TokenMasks::takes_all_text(RegexId lexeme) {
  constexpr std::size_t kMostStates = 2'000;
  std::vector<std::pair<RegexId, RegexId>> work{{lexeme, safe_char_}};
  std::unordered_set<std::uint64_t> seen;
  for (std::size_t i = 0; i < work.size(); ++i) {
    const auto [state, rest] = work[i];
    ByteSet wanted = store_.first_bytes(rest), possible = store_.first_bytes(state);
    possible &= wanted;
    if (possible != wanted || work.size() > kMostStates) return false;
    wanted.for_each([&](std::uint8_t byte) {
      const RegexId next = store_.step(state, byte);
      RegexId left = store_.step(rest, byte);
      if (store_.finished(left)) left = safe_char_;
      if (seen.insert(std::uint64_t{next} << 32 | left).second) work.emplace_back(next, left);
    });
    meter_.count(64);
  }
  for (const auto& [state, rest] : work) {
    if (rest == safe_char_) plain_chars_[state] = kEndless;
  }
  return true;
}

// The state after one safe character, if it is the same for all of them; kNothing: none is allowed.
RegexId TokenMasks::after_one_char(RegexId lexeme) {
  const auto known = after_one_char_.find(lexeme);
  if (known != after_one_char_.end()) return known->second;
  const RegexId found = find_after_one_char(lexeme);
  after_one_char_.emplace(lexeme, found);
  return found;
}

RegexId TokenMasks::find_after_one_char(RegexId lexeme) {
  ByteSet possible = store_.first_bytes(lexeme);
  possible &= safe_first_;
  if (possible.empty()) return kNothing;
  if (possible != safe_first_) return kMixed;
  std::vector<std::pair<RegexId, RegexId>> work{{lexeme, safe_char_}};
  RegexId end = kNothing;
  for (std::size_t i = 0; i < work.size(); ++i) {
    const auto [state, rest] = work[i];
    const ByteSet bytes = store_.first_bytes(rest);
    bytes.for_each([&](std::uint8_t byte) {
      if (end == kMixed) return;
      const RegexId next = store_.step(state, byte), left = store_.step(rest, byte);
      if (next == kNothing) {
        end = kMixed;
      } else if (!store_.finished(left)) {
        const std::pair both(next, left);
        if (std::find(work.begin(), work.end(), both) == work.end()) work.push_back(both);
      } else if (end == kNothing) {
        end = next;
      } else if (end != next) {
        end = kMixed;
      }
    });
  }
  return end;
}

}  // namespace quire::structured
