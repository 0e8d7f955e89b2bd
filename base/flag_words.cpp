#include "base/flag_words.h"

namespace quire {

std::string_view flag_name(std::string_view word) { return word.substr(0, word.find('=')); }

MissingValue missing_value(std::span<const std::string> words,
                           const std::function<FlagWord(std::string_view name)>& kind_of) {
  const auto is_flag = [&](const std::string& word) {
    return word.starts_with("--") ||
           (word.starts_with('-') && kind_of(flag_name(word)) != FlagWord::none);
  };
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    const std::string_view name = flag_name(words[i]);
    const bool stands_apart = name.size() == words[i].size();
    if (!name.starts_with('-') || !stands_apart || kind_of(name) != FlagWord::with_value) continue;
    if (++i == words.size()) return {std::string(name), {}};
    if (is_flag(words[i])) return {std::string(name), std::string(flag_name(words[i]))};
  }
  return {};
}

}  // namespace quire
