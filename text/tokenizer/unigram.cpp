#include "text/tokenizer/unigram.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/json.h"
#include "base/utf8.h"

namespace quire {
namespace {

constexpr double kUnkPenalty = 10.0;  // below the worst score, as SentencePiece has it

}  // namespace

UnigramModel::UnigramModel(const Json& field)
    : byte_fallback_(field.boolean({"byte_fallback"}).value_or(false)) {
  const Json vocab_field = field.at("vocab");
  const auto entries = vocab_field.items();
  if (entries.size() > static_cast<std::size_t>(kMaxTokenId))
    vocab_field.fail("has too many tokens");
  vocab_ = Vocab(entries.size());
  double lowest = std::numeric_limits<double>::infinity();
  for (const Json entry : entries) {
    if (!entry.is_array() || entry.items().size() != 2) entry.fail("must be [token, score]");
    const auto pair = entry.items();
    vocab_.add(pair[0].as_string(), static_cast<TokenId>(scores_.size()));
    scores_.push_back(pair[1].as_number());
    lowest = std::min(lowest, scores_.back());
  }
  std::vector<std::pair<std::string_view, std::int32_t>> tokens;
  tokens.reserve(scores_.size());
  for (TokenId id = 0; id < vocab_.id_limit(); ++id) tokens.emplace_back(vocab_.token(id), id);
  trie_ = ByteTrie(std::move(tokens));
  if (const auto unk = field.find({"unk_id"})) {
    if (scores_.empty()) unk->fail("there are no tokens");
    unk_ = static_cast<TokenId>(unk->as_integer({0, vocab_.id_limit() - 1}));
  }
  unk_score_ = lowest - kUnkPenalty;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    fallback_ids_[byte] = vocab_.find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
}

void UnigramModel::encode(std::string_view text, std::span<const Piece> pieces,
                          std::vector<TokenId>& ids) const {
  ScratchPool<Scratch>::Loan loan(pool_);
  Scratch& scratch = *loan;
  for (const Piece& piece : pieces) {
    if (piece.size() > WordKey::kMaxSize) {
      encode_word(piece.of(text), scratch);
    } else {
      WordKey key;
      key.assign(text, piece);
      auto& entry = scratch.cache.place_of(key);
      if (entry.holds(key, piece.size())) {
        entry.append_to(ids);
        continue;
      }
      encode_word(piece.of(text), scratch);
      entry.put(key, piece.size(), scratch.ids);
    }
    ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
  }
}

void UnigramModel::find_best_paths(std::string_view word, std::vector<BestPath>& paths) const {
  paths.assign(word.size() + 1, BestPath{});
  const auto offer = [&](std::size_t begin, std::size_t end, double score, TokenId id) {
    BestPath& path = paths[end];
    const double total = score + paths[begin].score;
    if (path.begin == kUnreached || total > path.score) path = {total, begin, id};
  };
  for (std::size_t begin = 0, length = 0; begin < word.size(); begin += length) {
    length = utf8_length(word[begin]);
    bool single = false;  // a token for this one character
    ByteTrie::Node node = ByteTrie::kRoot;
    for (std::size_t end = begin; end < word.size();) {
      node = trie_.child(node, word[end++]);
      if (node == ByteTrie::kNone) break;
      const TokenId id = trie_.value(node);
      if (id < 0) continue;
      offer(begin, end, scores_[static_cast<std::size_t>(id)], id);
      single = single || end - begin == length;
    }
    if (!single) offer(begin, begin + length, unk_score_, unk_.value_or(-1));
  }
}

void UnigramModel::encode_word(std::string_view word, Scratch& scratch) const {
  find_best_paths(word, scratch.paths);
  auto& tokens = scratch.tokens;  // from the last to the first
  tokens.clear();
  bool fusing = false;  // neighbouring unknown characters are one token
  for (std::size_t end = word.size(); end > 0;) {
    const BestPath& path = scratch.paths[end];
    const bool unknown = path.id == unk_.value_or(-1);
    const Piece piece{static_cast<std::uint32_t>(path.begin), static_cast<std::uint32_t>(end)};
    if (unknown && fusing) {
      tokens.back().begin = piece.begin;
    } else {
      tokens.push_back(piece);
    }
    fusing = unknown;
    end = path.begin;
  }
  scratch.ids.clear();
  for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) {
    add_token(token->of(word), scratch.ids);
  }
}

void UnigramModel::add_token(std::string_view token, std::vector<TokenId>& ids) const {
  if (const auto id = vocab_.find(token)) {
    ids.push_back(*id);
    return;
  }
  const auto fallback = [this](char b) { return fallback_ids_[static_cast<unsigned char>(b)]; };
  if (byte_fallback_ &&
      std::all_of(token.begin(), token.end(), [&](char b) { return fallback(b) >= 0; })) {
    for (const char b : token) ids.push_back(fallback(b));
  } else if (unk_) {
    ids.push_back(*unk_);
  }
}

}  // namespace quire
