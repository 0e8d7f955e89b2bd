#include "text/template/shown.h"

#include "jinja/values/search.h"
#include "jinja/values/unicode.h"

namespace quire {

bool are_shown(std::string_view prompt, const std::vector<std::string_view>& texts) {
  std::size_t at = 0;
  for (const std::string_view text : texts) {
    const std::string_view words = jinja::unicode::strip(text, true, true);
    if (words.empty()) continue;
    at = jinja::TextSearch(words).find(prompt, at);
    if (at == jinja::TextSearch::npos) return false;
    at += words.size();
  }
  return true;
}

}  // namespace quire
