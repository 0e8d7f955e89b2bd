#include "engine/structured/vocabulary.h"

#include <algorithm>
#include <functional>

#include "text/tokenizer/tokenizer.h"

namespace quire::structured {
namespace {

constexpr std::uint32_t kNotSafe = 0xffffffff;

// Characters of a token that is whole UTF-8 and may stand raw in a JSON string; else kNotSafe.
std::uint32_t safe_chars(std::string_view bytes) {
  std::uint32_t chars = 0;
  for (std::size_t i = 0; i < bytes.size(); ++chars) {
    const auto at = [&](std::size_t k) { return static_cast<unsigned char>(bytes[k]); };
    const unsigned head = at(i);
    if (head < 0x20 || head == '"' || head == '\\') return kNotSafe;
    if (head >= 0x80 && (head < 0xc2 || head > 0xf4)) return kNotSafe;
    const std::size_t length = head < 0x80 ? 1 : head >= 0xf0 ? 4 : head >= 0xe0 ? 3 : 2;
    if (i + length > bytes.size()) return kNotSafe;
    for (std::size_t k = 1; k < length; ++k) {
      if ((at(i + k) & 0xc0) != 0x80) return kNotSafe;
    }
    const unsigned second = length > 1 ? at(i + 1) : 0;
    if ((head == 0xe0 && second < 0xa0) || (head == 0xed && second > 0x9f) ||
        (head == 0xf0 && second < 0x90) || (head == 0xf4 && second > 0x8f)) {
      return kNotSafe;
    }
    i += length;
  }
  return chars;
}

}  // namespace

TokenTrie::TokenTrie(std::span<const std::pair<std::string_view, TokenId>> tokens) {
  first_.fill(kNone);
  std::vector<std::uint32_t> way;  // nodes from the root to the last one
  const auto close = [&](std::size_t depth) {
    for (; way.size() > depth; way.pop_back()) {
      nodes_[way.back()].skip = static_cast<std::uint32_t>(nodes_.size());
    }
  };
  std::string_view last;
  for (const auto& [bytes, id] : tokens) {
    if (bytes == last) continue;  // found through next_same
    std::size_t shared = 0;
    while (shared < last.size() && shared < bytes.size() && last[shared] == bytes[shared]) ++shared;
    close(shared);
    for (std::size_t i = shared; i < bytes.size(); ++i) {
      const auto byte = static_cast<std::uint8_t>(bytes[i]);
      const auto node = static_cast<std::uint32_t>(nodes_.size());
      if (i == 0) first_[byte] = node;
      nodes_.push_back({0, -1, static_cast<std::uint16_t>(i + 1), byte});
      way.push_back(node);
    }
    nodes_.back().token = id;
    max_depth_ = std::max(max_depth_, bytes.size());
    last = bytes;
  }
  close(0);
}

Vocabulary::Vocabulary(std::vector<std::string> bytes, std::vector<TokenId> end_tokens)
    : bytes_(std::move(bytes)), end_tokens_(std::move(end_tokens)), next_same_(bytes_.size(), -1) {
  constexpr std::size_t kLongest = 0xffff;
  std::vector<std::pair<std::string_view, TokenId>> sorted;
  for (std::size_t id = 0; id < bytes_.size(); ++id) {
    const auto token = static_cast<TokenId>(id);
    if (bytes_[id].empty() || bytes_[id].size() > kLongest) continue;
    sorted.emplace_back(bytes_[id], token);
  }
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i].first == sorted[i - 1].first) {
      next_same_[static_cast<std::size_t>(sorted[i - 1].second)] = sorted[i].second;
    }
  }
  for (const auto& [text, id] : sorted) {
    if (text.size() > 1 && text.front() == kSpecial) special_texts_.emplace_back(text.substr(1));
  }
  std::ranges::stable_sort(special_texts_, std::greater(), &std::string::size);
  all_ = std::make_unique<const TokenTrie>(sorted);
  find_plain(sorted);
}

void Vocabulary::find_plain(std::span<const std::pair<std::string_view, TokenId>> sorted) {
  constexpr std::uint32_t kLongest = 64;
  std::vector<std::pair<std::string_view, TokenId>> others;
  for (const auto& [bytes, id] : sorted) {
    const std::uint32_t chars = safe_chars(bytes);
    if (chars > kLongest) {
      others.emplace_back(bytes, id);
      continue;
    }
    while (plain_.size() < chars) plain_.emplace_back(words());
    plain_[chars - 1][static_cast<std::size_t>(id) / 32] |= 1u << static_cast<std::size_t>(id) % 32;
  }
  for (std::size_t n = 1; n < plain_.size(); ++n) {
    for (std::size_t w = 0; w < words(); ++w) plain_[n][w] |= plain_[n - 1][w];
  }
  others_ = std::make_unique<const TokenTrie>(others);
}

std::span<const std::uint32_t> Vocabulary::plain(std::uint32_t chars) const {
  return plain_[std::min(chars, longest_plain()) - 1];
}

std::shared_ptr<const Vocabulary> Vocabulary::of(const Tokenizer& tokenizer,
                                                 std::span<const TokenId> end_tokens) {
  std::vector<std::string> bytes(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    std::string& own = bytes[static_cast<std::size_t>(id)];
    if (tokenizer.is_special(id)) {
      own = kSpecial + std::string(tokenizer.id_to_token(id));
    } else {
      own = tokenizer.token_bytes(id);
      if (own.find(kSpecial) != own.npos)
        own.clear();  // no text needs it, and it must not pass for one
    }
  }
  return std::make_shared<const Vocabulary>(
      std::move(bytes), std::vector<TokenId>(end_tokens.begin(), end_tokens.end()));
}

}  // namespace quire::structured
