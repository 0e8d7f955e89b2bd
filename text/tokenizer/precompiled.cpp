// SentencePiece's table of replacements: a double array trie over bytes, then the replacements as
// strings that end with a zero byte, all in base64.

#include <utf8proc.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/utf8.h"
#include "text/tokenizer/normalizer.h"

#include <simdjson.h>

namespace quire {
namespace {

std::optional<std::string> base64_decoded(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string out;
  std::uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (value < 0) return {};
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    out += static_cast<char>(bits >> num_bits & 0xFF);
  }
  return out;
}

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(const Json& field) {
    const Json map = field.at("precompiled_charsmap");
    const auto decoded = base64_decoded(map.as_string());
    if (!decoded || decoded->size() < sizeof(std::uint32_t)) map.fail("is not base64 of a table");
    std::uint32_t trie_bytes = 0;
    std::memcpy(&trie_bytes, decoded->data(), sizeof trie_bytes);
    const std::string_view rest = std::string_view(*decoded).substr(sizeof trie_bytes);
    if (trie_bytes % 4 != 0 || trie_bytes > rest.size()) map.fail("has a trie of a wrong size");
    units_.resize(trie_bytes / 4);
    std::memcpy(units_.data(), rest.data(), trie_bytes);
    replacements_ = rest.substr(trie_bytes);
    if (!simdjson::validate_utf8(replacements_)) map.fail("has replacements that are not UTF-8");
  }

  void apply(NormalizedText& text) const override {
    std::string out;
    out.reserve(text.text.size());
    for (std::string_view rest = text.text; !rest.empty();) {
      const std::string_view cluster = rest.substr(0, grapheme_length(rest));
      rest.remove_prefix(cluster.size());
      // SentencePiece looks up short clusters as a whole, and so keeps the accents of a letter
      // that it maps as one with them; the library takes over the rule with its limit.
      if (cluster.size() < 6) {
        if (const auto replacement = find(cluster)) {
          out += *replacement;
          continue;
        }
      }
      for_each_char(cluster,
                    [&](char32_t, std::string_view bytes) { out += find(bytes).value_or(bytes); });
    }
    text.text = std::move(out);
  }

 private:
  static std::size_t grapheme_length(std::string_view text) {
    const char* at = text.data();
    const char* const end = at + text.size();
    auto previous = static_cast<utf8proc_int32_t>(utf8_next(at));
    utf8proc_int32_t state = 0;
    while (at < end) {
      const char* next = at;
      const auto c = static_cast<utf8proc_int32_t>(utf8_next(next));
      if (utf8proc_grapheme_break_stateful(previous, c, &state)) break;
      previous = c;
      at = next;
    }
    return static_cast<std::size_t>(at - text.data());
  }

  // The replacement of the shortest entry that `text` starts with.
  std::optional<std::string_view> find(std::string_view text) const {
    std::size_t node = 0;
    const auto unit = [&] { return node < units_.size() ? units_[node] : 0; };
    const auto offset = [](std::uint32_t u) { return (u >> 10) << ((u & (1u << 9)) >> 6); };
    node ^= offset(unit());
    for (const char c : text) {
      const auto label = static_cast<unsigned char>(c);
      if (label == 0) break;
      node ^= label;
      const std::uint32_t found = unit();
      if ((found & (1u << 31 | 0xFF)) != label) return {};
      node ^= offset(found);
      const bool has_leaf = (found >> 8 & 1) != 0;
      if (has_leaf) return replacement_at(unit() & 0x7FFFFFFF);
    }
    return {};
  }

  std::optional<std::string_view> replacement_at(std::size_t begin) const {
    const std::string_view all = replacements_;
    if (begin >= all.size() || (static_cast<unsigned char>(all[begin]) & 0xC0) == 0x80) return {};
    return all.substr(begin, all.find('\0', begin) - begin);
  }

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace

std::unique_ptr<Normalizer> load_precompiled(const Json& field) {
  return std::make_unique<Precompiled>(field);
}

}  // namespace quire
