#include "text/tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/tokenizer/byte_chars.h"
#include "text/tokenizer/pre_tokenizer_steps.h"
#include "text/unicode.h"

namespace quire {
namespace {

// Merges each match with the span before it (in the order given) unless that is a match, too.
template <class Iterator, class Join>
void merge_matches(Iterator begin, Iterator end, std::vector<Span>& out, Join&& join) {
  bool previous = false;
  for (; begin != end; ++begin) {
    if (begin->is_match && !previous && !out.empty()) {
      join(out.back(), *begin);
    } else {
      out.push_back(*begin);
    }
    previous = begin->is_match;
  }
}

std::vector<Span> with_behavior(const std::vector<Span>& spans, SplitBehavior behavior) {
  std::vector<Span> out;
  switch (behavior) {
    case SplitBehavior::isolated:
      return spans;
    case SplitBehavior::removed:
      std::copy_if(spans.begin(), spans.end(), std::back_inserter(out),
                   [](const Span& span) { return !span.is_match; });
      break;
    case SplitBehavior::contiguous: {
      bool previous = false;
      for (const Span& span : spans) {
        if (span.is_match == previous && !out.empty()) {
          out.back().end = span.end;
        } else {
          out.push_back(span);
        }
        previous = span.is_match;
      }
      break;
    }
    case SplitBehavior::merged_with_previous:
      merge_matches(spans.begin(), spans.end(), out,
                    [](Span& last, const Span& span) { last.end = span.end; });
      break;
    case SplitBehavior::merged_with_next:
      merge_matches(spans.rbegin(), spans.rend(), out,
                    [](Span& last, const Span& span) { last.begin = span.begin; });
      std::reverse(out.begin(), out.end());
      break;
  }
  return out;
}

// Rewrites word by word: `write(out, word, index)` appends what becomes of a word.
template <class Write>
void rewrite_words(PreTokenized& text, Write&& write) {
  std::string out;
  out.reserve(text.text.size() + text.words.size());
  std::vector<Piece> words;
  words.reserve(text.words.size());
  for (std::size_t i = 0; i < text.words.size(); ++i) {
    const auto begin = static_cast<std::uint32_t>(out.size());
    write(out, text.words[i].of(text.text), i);
    words.push_back({begin, static_cast<std::uint32_t>(out.size())});
  }
  text.rewrite(std::move(out), std::move(words));
}

}  // namespace

void PreTokenized::rewrite(std::string text_of_words, std::vector<Piece> new_words) {
  rewritten = std::move(text_of_words);
  text = rewritten;
  words = std::move(new_words);
}

void SplitStep::apply(PreTokenized& text) const {
  std::vector<Piece> words;
  std::vector<Span> spans;
  const auto start = text.words.empty() ? 0 : text.words.front().begin;
  words.reserve(text.words.size() + text.text.size() / 4);
  for (const Piece& word : text.words) {
    if (behavior_ == SplitBehavior::isolated) {
      pattern_->cut(word.of(text.text), word.begin, words);
      continue;
    }
    pattern_->find(word.of(text.text), spans);
    if (invert_) {
      for (Span& span : spans) span.is_match = !span.is_match;
    }
    for (const Span& span : with_behavior(spans, behavior_)) {
      if (span.begin == span.end) continue;
      words.push_back({word.begin + span.begin, word.begin + span.end});
    }
  }
  text.starts_input = text.starts_input && !words.empty() && words.front().begin == start;
  text.words = std::move(words);
}

void WordCharStep::apply(PreTokenized& text) const {
  enum Kind { space, word_char, other };
  std::vector<Piece> words;
  const auto start = text.words.empty() ? 0 : text.words.front().begin;
  for (const Piece& word : text.words) {
    Kind previous = space;
    for_each_char(word.of(text.text), [&](char32_t c, std::string_view bytes) {
      const Kind kind = is_word(c) ? word_char : is_white_space(c) ? space : other;
      const auto begin = static_cast<std::uint32_t>(bytes.data() - text.text.data());
      if (kind != space && kind != previous) words.push_back({begin, begin});
      if (kind != space) words.back().end = begin + static_cast<std::uint32_t>(bytes.size());
      previous = kind;
    });
  }
  text.starts_input = text.starts_input && !words.empty() && words.front().begin == start;
  text.words = std::move(words);
}

void FixedLengthStep::apply(PreTokenized& text) const {
  std::vector<Piece> words;
  for (const Piece& word : text.words) {
    std::size_t chars = 0;
    for_each_char(word.of(text.text), [&](char32_t, std::string_view bytes) {
      const auto begin = static_cast<std::uint32_t>(bytes.data() - text.text.data());
      if (chars++ % length_ == 0) words.push_back({begin, begin});
      words.back().end = begin + static_cast<std::uint32_t>(bytes.size());
    });
  }
  text.words = std::move(words);
}

void PrefixSpaceStep::apply(PreTokenized& text) const {
  rewrite_words(text, [](std::string& out, std::string_view word, std::size_t) {
    if (!word.starts_with(' ')) out += ' ';
    out += word;
  });
}

void ByteCharsStep::apply(PreTokenized& text) const {
  rewrite_words(text, [](std::string& out, std::string_view word, std::size_t) {
    append_chars_of_bytes(out, word);
  });
}

void MetaspaceStep::apply(PreTokenized& text) const {
  rewrite_words(text, [&](std::string& out, std::string_view word, std::size_t index) {
    const bool may_prepend = scheme_ == PrependScheme::always ||
                             (scheme_ == PrependScheme::first && index == 0 && text.starts_input);
    if (may_prepend && !word.starts_with(' ') && !word.starts_with(replacement_)) {
      out += replacement_;
    }
    for (const char c : word) {
      if (c == ' ') {
        out += replacement_;
      } else {
        out += c;
      }
    }
  });
}

}  // namespace quire
