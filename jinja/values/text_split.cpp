#include "jinja/values/text_split.h"

#include <algorithm>

#include "jinja/evaluation.h"
#include "jinja/values/search.h"
#include "jinja/values/unicode.h"

namespace quire::jinja {
namespace {

bool ends_line(char32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    std::int64_t max_split) {
  const TextSearch search(separator);
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  for (; max_split != 0; --max_split) {
    const std::size_t at = search.find(text, begin);
    if (at == search.npos) break;
    parts.push_back(text.substr(begin, at - begin));
    begin = at + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<std::string_view> rsplit(std::string_view text, std::string_view separator,
                                     std::int64_t max_split) {
  const ReverseSearch search(text, separator);
  std::vector<std::string_view> parts;
  std::size_t end = text.size();
  for (; max_split != 0; --max_split) {
    const std::size_t at = search.find(end);
    if (at == text.npos) break;
    parts.push_back(text.substr(at + separator.size(), end - at - separator.size()));
    end = at;
  }
  parts.push_back(text.substr(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_space(std::string_view text, std::int64_t max_split) {
  std::vector<std::string_view> parts;
  for (text = unicode::strip(text, true, false); !text.empty(); --max_split) {
    if (max_split == 0) {
      parts.push_back(text);
      break;
    }
    std::size_t end = 0;
    while (end < text.size()) {
      std::size_t after = end;
      if (unicode::is_space(unicode::next(text, after))) break;
      end = after;
    }
    parts.push_back(text.substr(0, end));
    text = unicode::strip(text.substr(end), true, false);
  }
  return parts;
}

std::vector<std::string_view> rsplit_space(std::string_view text, std::int64_t max_split) {
  std::vector<std::string_view> parts;
  for (text = unicode::strip(text, false, true); !text.empty(); --max_split) {
    if (max_split == 0) {
      parts.push_back(text);
      break;
    }
    std::size_t begin = text.size();
    while (begin > 0) {
      std::size_t before = begin;
      if (unicode::is_space(unicode::previous(text, before))) break;
      begin = before;
    }
    parts.push_back(text.substr(begin));
    text = unicode::strip(text.substr(0, begin), false, true);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = i;
    const char32_t c = unicode::next(text, i);
    if (!ends_line(c)) continue;
    i += c == '\r' && i < text.size() && text[i] == '\n';
    lines.push_back(text.substr(begin, (keep_ends ? i : end) - begin));
    begin = i;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string replace_text(Evaluation& evaluation, std::string_view text, std::string_view old_part,
                         std::string_view new_part, std::int64_t limit) {
  evaluation.charge_text(text.size());
  const TextSearch search(old_part);
  std::string out;
  std::size_t position = 0;
  for (std::int64_t done = 0; limit < 0 || done < limit; ++done) {
    std::size_t at = old_part.empty() ? position : search.find(text, position);
    if (at == text.npos) break;
    // An empty part stands before every character and at the end.
    if (old_part.empty() && done > 0) {
      if (position == text.size()) break;
      at = unicode::skip(text, 1, position);
    }
    evaluation.step();
    evaluation.charge_text(new_part.size());
    out.append(text, position, at - position).append(new_part);
    position = at + old_part.size();
  }
  return out.append(text, position);
}

}  // namespace quire::jinja
