#include "text/tokenizer/replacement.h"

#include "base/error.h"
#include "text/tokenizer/json_field.h"
#include "text/utf8.h"

namespace quire {

std::unique_ptr<SplitPattern> load_pattern(const JsonField& field) {
  if (const auto literal = field.find("String")) {
    // An empty text is found everywhere, which is a matter for expressions.
    return literal->string().empty() ? make_pcre_pattern("")
                                     : make_literal_pattern(literal->string());
  }
  const JsonField expression = field.at("Regex");
  try {
    return make_regex_pattern(expression.string());
  } catch (const Failure& failure) {
    expression.fail(failure.error().detail);
  }
}

Replacement::Replacement(const JsonField& field)
    : content_(field.required_text("content")), pattern_(load_pattern(field.at("pattern"))) {
  literal_ = field.at("pattern").text("String");
}

Replacement::First Replacement::apply(std::string& text) const {
  std::vector<Span> spans;
  pattern_->find(text, spans);
  First first;
  bool found = false;
  std::string out;
  out.reserve(text.size());
  for (const Span& span : spans) {
    const auto part = std::string_view(text).substr(span.begin, span.end - span.begin);
    if (span.is_match && !found) first = {span.begin, span.end, utf8_count(part)};
    found = found || span.is_match;
    out += span.is_match ? std::string_view(content_) : part;
  }
  if (found) text = std::move(out);
  return first;
}

}  // namespace quire
