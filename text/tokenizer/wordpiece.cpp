#include "text/tokenizer/wordpiece.h"

#include "base/json.h"
#include "base/utf8.h"

namespace quire {
namespace {

ByteTrie trie_of(const Vocab& vocab) {
  std::vector<std::pair<std::string_view, std::int32_t>> tokens;
  tokens.reserve(vocab.size());
  for (TokenId id = 0; id < vocab.id_limit(); ++id) {
    if (vocab.has(id)) tokens.emplace_back(vocab.token(id), id);
  }
  return ByteTrie(std::move(tokens));
}

}  // namespace

WordPieceModel::WordPieceModel(const Json& field)
    : vocab_(Vocab::from_object(field.at("vocab"))),
      trie_(trie_of(vocab_)),
      continuation_(trie_.find(field.text({"continuing_subword_prefix"}).value_or("##"))),
      unk_(vocab_.find(field.text({"unk_token"}).value_or("[UNK]"))),
      max_chars_(100) {
  if (const auto limit = field.find({"max_input_chars_per_word"})) {
    max_chars_ = static_cast<std::size_t>(limit->as_integer({0, INT64_MAX}));
  }
}

void WordPieceModel::encode(std::string_view text, std::span<const Piece> pieces,
                            std::vector<TokenId>& ids) const {
  for (const Piece& piece : pieces) {
    const std::size_t before = ids.size();
    if (encode_word(piece.of(text), ids)) continue;
    ids.resize(before);
    if (unk_) ids.push_back(*unk_);
  }
}

bool WordPieceModel::encode_word(std::string_view word, std::vector<TokenId>& ids) const {
  if (utf8_count(word) > max_chars_) return false;
  for (ByteTrie::Node from = ByteTrie::kRoot; !word.empty(); from = continuation_) {
    if (from == ByteTrie::kNone) return false;
    const auto match = trie_.longest_prefix(word, from);
    if (match.length == 0) return false;
    ids.push_back(match.value);
    word.remove_prefix(match.length);
  }
  return true;
}

WordLevelModel::WordLevelModel(const Json& field)
    : vocab_(Vocab::from_object(field.at("vocab"))),
      unk_(vocab_.find(field.text({"unk_token"}).value_or("<unk>"))) {}

void WordLevelModel::encode(std::string_view text, std::span<const Piece> pieces,
                            std::vector<TokenId>& ids) const {
  for (const Piece& piece : pieces) {
    if (const auto id = vocab_.find(piece.of(text))) {
      ids.push_back(*id);
    } else if (unk_) {
      ids.push_back(*unk_);
    }
  }
}

}  // namespace quire
