#include "text/tokenizer/tokenizer.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer/byte_chars.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer_parts.h"

namespace quire {
namespace {

constexpr std::size_t kMaxText = 128 << 20;                   // bytes
constexpr std::size_t kMaxNormalized = std::size_t{1} << 30;  // so that offsets fit in 32 bits

void check_length(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return;
  throw Failure(
      ErrorCode::too_large,
      fmt::format("a text of {} bytes is too long to encode, the limit is {}", text.size(), limit));
}

std::string with_replacements(std::string_view text) {
  std::string out;
  const char* at = text.data();
  for (const char* const end = at + text.size(); at < end;) {
    const Utf8Step step = utf8_step(at, end);
    out += step.kind == Utf8Step::valid ? std::string_view(at, step.length) : kReplacementCharacter;
    at += step.length;
  }
  return out;
}

// Encodes one text with the parts of a tokenizer.
class Encoding {
 public:
  Encoding(const Tokenizer::Parts& parts, SegmentCache& cache) : parts_(parts), cache_(cache) {}

  std::vector<TokenId> encode(std::string_view text) {
    ids_.reserve(text.size() / 4);
    for (const auto& part : parts_.added->split(text, /*after_normalization=*/false)) {
      if (part.id >= 0) {
        ids_.push_back(part.id);
      } else {
        add_segment(part.text, part.text.data() == text.data());
      }
    }
    return std::move(ids_);
  }

 private:
  // What stands between two added tokens is cut without looking at what is around it.
  void add_segment(std::string_view text, bool starts_input) {
    if (text.size() < SegmentCache::kMinText) return add_text(text, starts_input);
    if (cache_.append(text, starts_input, ids_)) return;
    const std::size_t begin = ids_.size();
    add_text(text, starts_input);
    cache_.put(text, starts_input, std::span(ids_).subspan(begin));
  }

  void add_text(std::string_view text, bool starts_input) {
    NormalizedText normalized;
    if (parts_.normalizer) {
      normalized.text = text;
      parts_.normalizer->apply(normalized);
      check_length(normalized.text, kMaxNormalized);
      text = normalized.text;
    }
    for (const auto& part : parts_.added->split(text, /*after_normalization=*/true)) {
      if (part.id >= 0) {
        ids_.push_back(part.id);
      } else {
        const bool first = part.text.data() == text.data();
        add_words(part.text, first && starts_input && normalized.keeps_start);
      }
    }
  }

  void add_words(std::string_view text, bool starts_input) {
    PreTokenized cut{text, {}, {{0, static_cast<std::uint32_t>(text.size())}}, starts_input};
    for (const auto& step : parts_.pre_tokenizers) step->apply(cut);
    parts_.model->encode(cut.text, cut.words, ids_);
  }

  const Tokenizer::Parts& parts_;
  SegmentCache& cache_;
  std::vector<TokenId> ids_;
};

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts, std::size_t cache_bytes)
    : parts_(std::move(parts)), cache_(cache_bytes) {}
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::encode_plain(std::string_view text) const {
  check_length(text, kMaxText);
  std::string valid;
  if (!simdjson::validate_utf8(text)) {
    valid = with_replacements(text);
    text = valid;
  }
  return Encoding(*parts_, cache_).encode(text);
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  std::vector<TokenId> ids = encode_plain(text);
  if (!parts_->post_processor) return ids;
  PostProcessor::Parts whole;
  whole.push_back(std::move(ids));
  return joined(add_special_tokens ? parts_->post_processor->with_specials(std::move(whole))
                                   : parts_->post_processor->without_specials(std::move(whole)));
}

// How many tokens stand behind the second text is found with a mark in its place.
Tokenizer::Pair Tokenizer::encode_pair(std::string_view first, std::string_view second,
                                       bool add_special_tokens) const {
  constexpr TokenId kMark = -2;
  const auto processed = [&](PostProcessor::Parts parts) {
    if (!parts_->post_processor) return joined(parts);
    return joined(add_special_tokens ? parts_->post_processor->with_specials(std::move(parts))
                                     : parts_->post_processor->without_specials(std::move(parts)));
  };
  const std::vector<TokenId> marked = processed({{}, {kMark}});
  const auto behind = std::find(marked.rbegin(), marked.rend(), kMark) - marked.rbegin();
  std::vector<TokenId> tokens = encode_plain(second);
  const auto num_second = static_cast<std::ptrdiff_t>(tokens.size());
  Pair pair{processed({encode_plain(first), std::move(tokens)}), 0};
  pair.second = static_cast<int>(static_cast<std::ptrdiff_t>(pair.ids.size()) - behind - num_second);
  return pair;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  Detokenizer detokenizer(*this, skip_special_tokens);
  std::string text = detokenizer.push(ids);
  return text += detokenizer.finish();
}

int Tokenizer::vocab_size() const { return static_cast<int>(parts_->pieces.size()); }

std::optional<TokenId> Tokenizer::token_to_id(std::string_view token) const {
  if (const auto id = parts_->added->find(token)) return id;
  return parts_->model->vocab().find(token);
}

std::string_view Tokenizer::id_to_token(TokenId id) const { return parts_->piece(id).token; }

std::string Tokenizer::token_bytes(TokenId id) const {
  const std::string_view token = id_to_token(id);
  if (parts_->byte_level) {
    std::string bytes;
    return append_bytes_of_chars(bytes, token) ? bytes : std::string(token);
  }
  unsigned byte = 0;
  if (parts_->byte_fallback && token.size() == 6 &&
      std::sscanf(std::string(token).c_str(), "<0x%02X>", &byte) == 1) {
    return std::string(1, static_cast<char>(byte));
  }
  const TokenId before = parts_->ordinary.value_or(-1);
  Detokenizer detokenizer(*this, /*skip_special_tokens=*/false, std::span(&before, 1));
  std::string text = detokenizer.push(id);
  return text += detokenizer.finish();
}

bool Tokenizer::is_special(TokenId id) const { return parts_->piece(id).special; }

const std::map<std::string, std::string, std::less<>>& Tokenizer::special_strings() const {
  return parts_->special_strings;
}

}  // namespace quire
