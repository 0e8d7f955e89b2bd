// Reading a BPE model, and what follows from its rules.

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/utf8.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/byte_chars.h"

namespace quire {
namespace {

constexpr std::size_t kJoinedBits = 1 << 20;

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); }

bool is_byte_token(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>') &&
         is_hex(token[3]) && is_hex(token[4]);
}

}  // namespace

BpeModel::BpeModel(const Json& field, bool byte_level)
    : byte_level_(byte_level),
      fuse_unk_(field.boolean({"fuse_unk"}).value_or(false)),
      byte_fallback_(field.boolean({"byte_fallback"}).value_or(false)),
      ignore_merges_(field.boolean({"ignore_merges"}).value_or(false)),
      prefix_(field.text({"continuing_subword_prefix"}).value_or("")),
      suffix_(field.text({"end_of_word_suffix"}).value_or("")),
      vocab_(Vocab::from_object(field.at("vocab"))) {
  if (const auto dropout = field.find({"dropout"}); dropout && dropout->as_number() != 0) {
    dropout->fail("encoding at random is not supported; null or 0 is");
  }
  // Where the vocabulary has no such token nothing stands for what is unknown.
  unk_ = vocab_.find(field.text({"unk_token"}).value_or(""));
  load_units();
  load_merges(field.at("merges"));
  if (byte_level_) map_words_to_bytes();
  merges_to_itself_ = std::vector<std::atomic<bool>>(static_cast<std::size_t>(vocab_.id_limit()));
}

void BpeModel::load_units() {
  for (std::size_t byte = 0; byte < 256; ++byte) {
    fallback_ids_[byte] = vocab_.find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
    std::string unit;
    if (byte_level_) {
      utf8_append(unit, kByteChars[byte]);
    } else if (byte < 0x80) {
      unit += static_cast<char>(byte);
    }
    byte_ids_[byte] = unit.empty() ? -1 : vocab_.find(unit).value_or(-1);
  }
  // Unknown units fuse over any seam, and where they are left out their neighbours may merge: there
  // must be none. And a part of a word must not be taken for a word that is a token.
  const bool none_unknown =
      byte_fallback_ &&
      std::all_of(fallback_ids_.begin(), fallback_ids_.end(), [](TokenId id) { return id >= 0; });
  if (!byte_level_ && !ignore_merges_ && prefix_.empty() && suffix_.empty() && none_unknown) {
    joined_pairs_.resize(kJoinedBits / 64);
  }
}

void BpeModel::load_merges(const Json& field) {
  const auto merges = field.items();
  merges_ = MergeMap(merges.size());
  std::uint32_t rank = 0;
  for (const Json merge : merges) {
    std::string problem;
    if (merge.is_string()) {
      const std::string_view line = merge.as_string();
      const std::size_t gap = line.find(' ');
      if (line.starts_with("#version")) continue;
      problem = gap == line.npos || line.find(' ', gap + 1) != line.npos
                    ? "must be two tokens with a space between"
                    : add_merge(line.substr(0, gap), line.substr(gap + 1), rank++);
    } else if (merge.is_array() && merge.items().size() == 2) {
      const auto pair = merge.items();
      problem = add_merge(pair[0].as_string(), pair[1].as_string(), rank++);
    } else {
      problem = "must be a string or a list of two strings";
    }
    if (!problem.empty()) merge.fail(problem);
  }
  if (merges_odd_tokens_) joined_pairs_.clear();
}

std::string BpeModel::add_merge(std::string_view left, std::string_view right, std::uint32_t rank) {
  const auto unknown = [](std::string_view token) {
    return fmt::format("\"{}\" is not in the vocabulary", token);
  };
  const auto left_id = vocab_.find(left);
  const auto right_id = vocab_.find(right);
  if (!left_id || !right_id) return unknown(left_id ? right : left);
  if (right.size() < prefix_.size()) return "the second token lacks the subword prefix";
  std::string merged(left);
  merged += right.substr(prefix_.size());
  const auto merged_id = vocab_.find(merged);
  if (!merged_id) return unknown(merged);
  merges_.assign(*left_id, *right_id, {rank, *merged_id});
  if (joined_pairs_.empty()) return {};
  merges_odd_tokens_ = merges_odd_tokens_ || left_id == unk_ || right_id == unk_ ||
                       is_byte_token(left) || is_byte_token(right);
  note_joined(merged);
  return {};
}

void BpeModel::note_joined(std::string_view token) {
  char32_t previous = 0;
  for_each_char(token, [&](char32_t c, std::string_view bytes) {
    const std::uint64_t hash = mix_bits(previous, c) & (kJoinedBits - 1);
    if (bytes.data() != token.data()) joined_pairs_[hash / 64] |= std::uint64_t{1} << (hash % 64);
    previous = c;
  });
}

void BpeModel::map_words_to_bytes() {
  words_by_bytes_ = StringMap(vocab_.size());
  std::string bytes;
  for (TokenId id = 0; id < vocab_.id_limit(); ++id) {
    bytes.clear();
    if (vocab_.has(id) && append_bytes_of_chars(bytes, vocab_.token(id))) {
      words_by_bytes_.assign(word_bytes_.keep(bytes), id);
    }
  }
}

}  // namespace quire
