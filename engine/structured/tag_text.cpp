#include "engine/structured/tag_text.h"

#include "engine/structured/regex/char_set.h"
#include "engine/structured/vocabulary.h"

namespace quire::structured {

TagText::TagText(RegexStore& store, std::span<const std::string> special_texts)
    : store_(store),
      special_texts_(special_texts),
      everything_(store.complement(kNothing)),
      any_{store.repeat(chars_regex(store, CharSet::all(), Spelling::plain), 0),
           store.repeat(store.bytes(ByteSet::range(0, 254)), 0), everything_} {
  static_assert(Vocabulary::kSpecial == '\xff');
  for (const std::string& text : special_texts_) {
    special_first_.add(static_cast<std::uint8_t>(text.front()));
  }
}

std::size_t TagText::special_at(std::string_view text) const {
  if (text.empty() || !special_first_.has(static_cast<std::uint8_t>(text.front()))) return 0;
  for (const std::string& special : special_texts_) {  // longer ones come first
    if (text.starts_with(special)) return special.size();
  }
  return 0;
}

RegexId TagText::mark(std::string_view text) const {
  RegexId whole = kEmpty;
  std::size_t plain = 0;  // of what was read, not yet added
  while (plain < text.size()) {
    const std::size_t length = special_at(text.substr(plain));
    if (length == 0) {
      ++plain;
      continue;
    }
    const std::string special(text.substr(plain, length));
    whole = store_.concat({whole, store_.literal(text.substr(0, plain)),
                           store_.literals({special, Vocabulary::kSpecial + special})});
    text.remove_prefix(plain + length);
    plain = 0;
  }
  return store_.concat(whole, store_.literal(text));
}

RegexId TagText::any_mark(const std::vector<std::string>& texts) const {
  std::vector<RegexId> marks;
  for (const std::string& text : texts) marks.push_back(mark(text));
  return store_.any_of(std::move(marks));
}

RegexId TagText::without(Over over, const std::vector<std::string>& marks) const {
  if (marks.empty()) return any(over);
  const RegexId found = store_.concat({everything_, any_mark(marks), everything_});
  return store_.all_of({any(over), store_.complement(found)});
}

RegexId TagText::not_beginning(Over over, const std::vector<std::string>& texts) const {
  const RegexId found = store_.concat(any_mark(texts), everything_);
  return store_.all_of({any(over), store_.complement(found)});
}

RegexId TagText::until(Over over, const std::string& end,
                       const std::vector<std::string>& marks) const {
  const RegexId one = store_.bytes(ByteSet::range(0, 255));
  const RegexId early = store_.concat({everything_, any_mark(marks), one, everything_});
  return store_.all_of({store_.concat(any(over), mark(end)), store_.complement(early)});
}

}  // namespace quire::structured
