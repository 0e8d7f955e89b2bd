#include "text/tokenizer/replacement.h"

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/tokenizer/normalizer.h"

namespace quire {

std::unique_ptr<SplitPattern> load_pattern(const Json& field) {
  if (const auto literal = field.find({"String"})) {
    // An empty text is found everywhere, which is a matter for expressions.
    return literal->as_string().empty() ? make_pcre_pattern("")
                                        : make_literal_pattern(literal->as_string());
  }
  const Json expression = field.at("Regex");
  try {
    return make_regex_pattern(expression.as_string());
  } catch (const Failure& failure) {
    expression.fail(failure.error().detail);
  }
}

Replacement::Replacement(const Json& field)
    : content_(field.need_text("content")), pattern_(load_pattern(field.at("pattern"))) {
  if (content_.size() > kMaxInsertedBytes) field.at("content").fail("has more than 256 bytes");
  literal_ = field.at("pattern").text({"String"}).value_or("");
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
