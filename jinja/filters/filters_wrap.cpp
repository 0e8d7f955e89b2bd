// Filters that lay out longer texts: indent, truncate, wordwrap, wordcount.

#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/filters/filter_functions.h"
#include "jinja/values/arithmetic.h"
#include "jinja/values/markup.h"
#include "jinja/values/repr.h"
#include "jinja/values/sequence.h"
#include "jinja/values/text_split.h"
#include "jinja/values/unicode.h"

namespace quire::jinja {
namespace {

const std::string& require_str(const Value& subject, const char* what,
                               ErrorKind kind = ErrorKind::type) {
  if (subject.is_undefined()) fail_undefined(subject);
  if (!subject.is_string())
    fail(kind, std::string(what) + " needs a text, not " + std::string(type_name(subject)));
  return subject.string();
}

Value indent(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  const List bound = bind("indent", arguments, {"width", "first", "blank"}, 0);
  // In Python a list takes the newline that is added first, and fails a step later.
  const ErrorKind kind = subject.is(Value::Kind::list) ? ErrorKind::attribute : ErrorKind::type;
  const std::string text = require_str(subject, "indent", kind) + "\n";
  std::string margin(4, ' ');
  if (is_given(bound[0])) {
    if (bound[0].is_string()) {
      margin = is_safe(subject) ? escape(bound[0]).string() : bound[0].string();
    } else {
      const std::int64_t width = std::max<std::int64_t>(as_index(bound[0]), 0);
      evaluation.charge_text(std::uint64_t(width));
      margin.assign(std::size_t(width), ' ');
    }
  }
  const bool blank = flag(bound, 2);
  const std::vector<std::string_view> lines = split_lines(text, false);
  std::string out = flag(bound, 1) ? margin : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    const bool indented = i > 0 && (blank || !lines[i].empty());
    evaluation.charge_text(lines[i].size() + margin.size());
    if (indented) out += margin;
    out += lines[i];
  }
  return evaluation.text(std::move(out), is_safe(subject));
}

Value truncate(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  const List bound = bind("truncate", arguments, {"length", "killwords", "end", "leeway"}, 0);
  const std::int64_t length = is_given(bound[0]) ? as_index(bound[0]) : 255;
  const Value end = is_given(bound[2]) ? bound[2] : Value("...");
  const std::int64_t leeway = is_given(bound[3]) && !bound[3].is_none() ? as_index(bound[3]) : 5;
  const auto end_length = std::int64_t(required_length(end));
  if (length < end_length) {
    fail(ErrorKind::value,
         "expected length >= " + std::to_string(end_length) + ", got " + std::to_string(length));
  }
  if (leeway < 0) fail(ErrorKind::value, "expected leeway >= 0, got " + std::to_string(leeway));
  if (std::int64_t(required_length(subject)) <= length + leeway) return subject;
  const std::string& text = require_str(subject, "truncate");
  std::string_view kept =
      std::string_view(text).substr(0, unicode::skip(text, std::size_t(length - end_length)));
  if (!flag(bound, 1)) kept = rsplit(kept, " ", 1).front();
  return evaluation.text(std::string(kept) + require_str(end, "truncate"), is_safe(subject));
}

Value wordcount(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  bind("wordcount", arguments, {}, 0);
  const std::string text = to_text(subject);
  evaluation.charge(text.size());
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t i = 0; i < text.size();) {
    const bool word = unicode::is_word(unicode::next(text, i));
    words += word && !inside;
    inside = word;
  }
  return Value(words);
}

bool is_wrap_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool is_letter(std::string_view text, std::size_t at) {
  if (at >= text.size()) return false;
  while ((text[at] & 0xc0) == 0x80 && at > 0) --at;
  const char32_t c = unicode::next(text, at);
  return unicode::is_word(c) && !unicode::is_decimal(c);
}

// White space, and words; a word may be cut after a hyphen between letters.
std::vector<std::string_view> wrap_chunks(std::string_view line, bool at_hyphens) {
  std::vector<std::string_view> chunks;
  for (std::size_t begin = 0; begin < line.size();) {
    std::size_t end = begin + 1;
    const bool space = is_wrap_space(line[begin]);
    for (; end < line.size() && is_wrap_space(line[end]) == space; ++end) {
      const bool hyphen =
          at_hyphens && !space && line[end - 1] == '-' && end >= begin + 3 && line[end] != '-' &&
          is_letter(line, end - 2) && is_letter(line, end - 3) && is_letter(line, end) &&
          (is_letter(line, end + 1) || (end + 1 < line.size() && line[end + 1] == '-'));
      if (hyphen) break;
    }
    chunks.push_back(line.substr(begin, end - begin));
    begin = end;
  }
  return chunks;
}

struct Wrapping {
  std::size_t width;
  bool break_long_words;
  bool break_on_hyphens;
};

// As Python's textwrap.wrap: fills lines greedily, drops white space where lines meet.
std::vector<std::string> wrap_line(std::string_view line, const Wrapping& wrapping) {
  std::vector<std::string_view> chunks = wrap_chunks(line, wrapping.break_on_hyphens);
  std::vector<std::size_t> lengths;  // of the chunks, in characters
  for (const std::string_view chunk : chunks) lengths.push_back(unicode::count(chunk));
  std::vector<std::string> lines;
  for (std::size_t next = 0; next < chunks.size();) {
    std::vector<std::string_view> current;
    std::size_t width = 0;
    if (!lines.empty() && is_wrap_space(chunks[next][0])) ++next;
    for (; next < chunks.size() && width + lengths[next] <= wrapping.width; ++next) {
      current.push_back(chunks[next]);
      width += lengths[next];
    }
    if (next < chunks.size() && lengths[next] > wrapping.width) {
      const std::size_t room = wrapping.width - width;
      if (wrapping.break_long_words) {
        const std::size_t taken = std::max<std::size_t>(room, current.empty() ? 1 : 0);
        const std::size_t cut = unicode::skip(chunks[next], taken);
        if (cut > 0) current.push_back(chunks[next].substr(0, cut));
        chunks[next].remove_prefix(cut);
        lengths[next] -= taken;
      } else if (current.empty()) {
        current.push_back(chunks[next++]);
      }
    }
    if (!current.empty() && is_wrap_space(current.back()[0])) current.pop_back();
    if (current.empty()) continue;
    std::string& text = lines.emplace_back();
    for (std::string_view chunk : current) text += chunk;
  }
  return lines;
}

Value wordwrap(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  const List bound = bind("wordwrap", arguments,
                          {"width", "break_long_words", "wrapstring", "break_on_hyphens"}, 0);
  const std::int64_t width = is_given(bound[0]) ? as_index(bound[0]) : 79;
  if (width <= 0)
    fail(ErrorKind::value, "invalid width " + std::to_string(width) + " (must be > 0)");
  const std::string newline = is_given(bound[2]) && !bound[2].is_none() ? to_text(bound[2]) : "\n";
  const Wrapping wrapping{std::size_t(width), !is_given(bound[1]) || truthy(bound[1]),
                          !is_given(bound[3]) || truthy(bound[3])};
  const std::string& text = require_str(subject, "wordwrap", ErrorKind::attribute);
  evaluation.charge(8 * text.size());
  std::string out;
  bool first = true;
  for (std::string_view line : split_lines(text, false)) {
    std::vector<std::string> wrapped = wrap_line(line, wrapping);
    if (wrapped.empty()) wrapped.emplace_back();
    for (const std::string& part : wrapped) {
      evaluation.charge_text(part.size() + newline.size());
      if (!first) out += newline;
      out += part;
      first = false;
    }
  }
  return evaluation.text(std::move(out));
}

// Addresses in the text become links.
Value urlize(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  const List bound = bind("urlize", arguments,
                          {"trim_url_limit", "nofollow", "target", "rel", "extra_schemes"}, 0);
  const std::string rel = flag(bound, 1) ? "nofollow noopener" : "noopener";
  const std::string text = escape_html(to_text(subject));
  std::string out;
  for (std::string_view chunk : wrap_chunks(text, false)) {
    const bool full = chunk.starts_with("http://") || chunk.starts_with("https://");
    if (!full && !chunk.starts_with("www.")) {
      out += chunk;
      continue;
    }
    std::string_view shown = chunk;
    if (is_given(bound[0]) && !bound[0].is_none() &&
        std::int64_t(unicode::count(chunk)) > as_index(bound[0])) {
      shown = chunk.substr(
          0, unicode::skip(chunk, std::size_t(std::max<std::int64_t>(as_index(bound[0]), 0))));
    }
    out.append("<a href=\"")
        .append(full ? "" : "https://")
        .append(chunk)
        .append("\" rel=\"")
        .append(rel);
    if (is_given(bound[2]) && !bound[2].is_none())
      out.append("\" target=\"").append(escape(bound[2]).string());
    out.append("\">").append(shown).append(shown.size() < chunk.size() ? "...</a>" : "</a>");
    evaluation.charge_text(2 * chunk.size() + 64);
  }
  return evaluation.text(std::move(out), evaluation.autoescape);
}

constexpr NamedFilter kFilters[] = {{"indent", indent},
                                    {"truncate", truncate},
                                    {"wordcount", wordcount},
                                    {"wordwrap", wordwrap},
                                    {"urlize", urlize}};

}  // namespace

FilterTable wrap_filters() { return {kFilters, std::size(kFilters)}; }

}  // namespace quire::jinja
