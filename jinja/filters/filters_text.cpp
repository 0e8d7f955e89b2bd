// Filters on texts.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "jinja/error.h"
#include "jinja/evaluation.h"
#include "jinja/filters/filter_functions.h"
#include "jinja/values/arithmetic.h"
#include "jinja/values/attributes.h"
#include "jinja/values/dict.h"
#include "jinja/values/json.h"
#include "jinja/values/markup.h"
#include "jinja/values/percent_format.h"
#include "jinja/values/repr.h"
#include "jinja/values/sequence.h"
#include "jinja/values/text_arguments.h"
#include "jinja/values/text_split.h"
#include "jinja/values/unicode.h"

namespace quire::jinja {
namespace {

using Kind = Value::Kind;

// The text's own method of that name.
Value by_method(Evaluation& evaluation, std::string_view name, const Value& subject,
                Arguments& arguments) {
  const Value text = soft_text(subject);
  return find_method(text, name)(evaluation, text, arguments);
}

Value upper(Evaluation& e, const Value& subject, Arguments& arguments) {
  return by_method(e, "upper", subject, arguments);
}
Value lower(Evaluation& e, const Value& subject, Arguments& arguments) {
  return by_method(e, "lower", subject, arguments);
}
Value capitalize(Evaluation& e, const Value& subject, Arguments& arguments) {
  return by_method(e, "capitalize", subject, arguments);
}

Value trim(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  Arguments chars{bind("trim", arguments, {"chars"}, 0), {}};
  if (!is_given(chars.positional[0])) chars.positional.clear();
  return by_method(evaluation, "strip", subject, chars);
}

Value center(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  const List bound = bind("center", arguments, {"width"}, 0);
  Arguments width{{is_given(bound[0]) ? bound[0] : Value(80)}, {}};
  return by_method(evaluation, "center", subject, width);
}

// Words begin after white space and after - ( { [ <, which stay as they are.
Value title(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  bind("title", arguments, {}, 0);
  const std::string text = to_text(subject);
  evaluation.charge(8 * text.size());
  const auto separates = [](char32_t c) {
    return unicode::is_space(c) ||
           std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    const char32_t c = unicode::next(text, i);
    if (separates(c)) {
      out.append(text, begin, i - begin);
      continue;
    }
    std::size_t end = i;
    for (std::size_t after = end; after < text.size() && !separates(unicode::next(text, after));
         end = after) {
    }
    out += unicode::upper(std::string_view(text).substr(begin, i - begin));
    out += unicode::lower(std::string_view(text).substr(i, end - i));
    i = end;
  }
  return evaluation.text(std::move(out), is_safe(subject));
}

Value replace(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  const List bound = bind("replace", arguments, {"old", "new", "count"}, 2);
  const std::int64_t count = is_given(bound[2]) && !bound[2].is_none() ? as_index(bound[2]) : -1;
  if (!evaluation.autoescape) {
    return evaluation.text(
        replace_text(evaluation, to_text(subject), to_text(bound[0]), to_text(bound[1]), count));
  }
  const bool escapes = is_safe(bound[0]) || (is_safe(bound[1]) && !is_safe(subject));
  const Value text = escapes ? escape(subject) : soft_text(subject);
  const auto part = [&](const Value& value) {
    return is_safe(text) ? escape(value).string() : to_text(value);
  };
  return evaluation.text(
      replace_text(evaluation, text.string(), part(bound[0]), part(bound[1]), count),
      is_safe(text));
}

Value format(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    fail(ErrorKind::runtime, "can't handle positional and keyword arguments at the same time");
  }
  const Value values = arguments.named.empty() ? Value(Tuple{std::move(arguments.positional)})
                                               : Value(Dict(std::move(arguments.named)));
  return percent_format(evaluation, soft_text(subject), values);
}

Value string(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  bind("string", arguments, {}, 0);
  return subject.is_string() ? subject : evaluation.text(to_text(subject));
}

Value safe(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  bind("safe", arguments, {}, 0);
  return is_safe(subject) ? subject : evaluation.text(to_text(subject), true);
}

Value escape_filter(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  bind("escape", arguments, {}, 0);
  const Value escaped = escape(subject);
  evaluation.charge_text(escaped.string().size());
  return escaped;
}

Value forceescape(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  bind("forceescape", arguments, {}, 0);
  const Value escaped = forced_escape(subject);
  evaluation.charge_text(escaped.string().size());
  return escaped;
}

Value striptags(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  bind("striptags", arguments, {}, 0);
  return evaluation.text(strip_tags(to_text(subject)));
}

std::string quote_url(std::string_view text, bool for_query) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte < 0x80 && std::isalnum(byte)) ||
                       std::string_view("_.-~").find(c) != std::string_view::npos;
    if (plain || (c == '/' && !for_query)) {
      out.push_back(c);
    } else if (c == ' ' && for_query) {
      out.push_back('+');
    } else {
      ((out += '%') += kHex[byte >> 4]) += kHex[byte & 15];
    }
  }
  return out;
}

Value urlencode(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  bind("urlencode", arguments, {}, 0);
  if (subject.is_string() || !try_iterate(subject))
    return evaluation.text(quote_url(to_text(subject), false));
  std::string out;
  const auto items = subject.is(Kind::dict) ? nullptr : iterate(subject);
  const auto add = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += '&';
    out += quote_url(to_text(key), true) + "=" + quote_url(to_text(value), true);
    evaluation.charge_text(out.size());
  };
  if (!items) {
    for (const auto& [key, value] : subject.dict()) add(key, value);
    return evaluation.text(std::move(out));
  }
  for (Value item; items->next(item);) {
    const List pair = collect(evaluation, item);
    if (pair.size() != 2) fail(ErrorKind::value, "not enough values to unpack (expected 2)");
    add(pair[0], pair[1]);
  }
  return evaluation.text(std::move(out));
}

Value xmlattr(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  const List bound = bind("xmlattr", arguments, {"autospace"}, 0);
  if (subject.is_undefined()) fail_undefined(subject);
  if (!subject.is(Kind::dict)) {
    fail(ErrorKind::attribute,
         "'" + std::string(type_name(subject)) + "' object has no attribute 'items'");
  }
  std::string out;
  for (const auto& [key, value] : subject.dict()) {
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_string()) fail(ErrorKind::type, "expected string or bytes-like object");
    if (key.string().find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      fail(ErrorKind::value, "Invalid character in attribute name: " + repr(key));
    }
    const bool spaced = !out.empty() || !is_given(bound[0]) || truthy(bound[0]);
    (out += spaced ? " " : "")
        .append(escape(key).string())
        .append("=\"")
        .append(escape(value).string())
        .append("\"");
    evaluation.charge_text(out.size());
  }
  return evaluation.text(std::move(out), evaluation.autoescape);
}

std::optional<std::string> indent_of(const Value& indent) {
  if (!is_given(indent) || indent.is_none()) return {};
  if (indent.is_undefined()) fail_undefined(indent);
  if (indent.is_string()) return indent.string();
  const std::int64_t width = as_index(indent);
  if (width > 1000) fail(ErrorKind::limit, "tojson with an indent of more than 1000");
  return std::string(std::size_t(std::max<std::int64_t>(width, 0)), ' ');
}

Value tojson(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  const List bound =
      bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  JsonStyle style;
  style.ensure_ascii = flag(bound, 0);
  style.indent = indent_of(bound[1]);
  if (style.indent) style.item_separator = ",";
  if (is_given(bound[2]) && !bound[2].is_none()) {
    const List pair = collect(evaluation, bound[2]);
    if (pair.size() != 2) fail(ErrorKind::value, "separators must be a pair of texts");
    if (!pair[0].is_string() || !pair[1].is_string())
      fail(ErrorKind::type, "separators must be texts");
    style.item_separator = pair[0].string();
    style.key_separator = pair[1].string();
  }
  style.sort_keys = flag(bound, 3);
  evaluation.charge(subject.extent().weight);
  return evaluation.text(dump_json(subject, style));
}

Value pprint(Evaluation& evaluation, const Value& subject, Arguments& arguments) {
  bind("pprint", arguments, {}, 0);
  return evaluation.text(repr(subject));
}

constexpr NamedFilter kFilters[] = {{"upper", upper},
                                    {"lower", lower},
                                    {"capitalize", capitalize},
                                    {"title", title},
                                    {"trim", trim},
                                    {"center", center},
                                    {"replace", replace},
                                    {"format", format},
                                    {"string", string},
                                    {"safe", safe},
                                    {"e", escape_filter},
                                    {"escape", escape_filter},
                                    {"forceescape", forceescape},
                                    {"striptags", striptags},
                                    {"urlencode", urlencode},
                                    {"xmlattr", xmlattr},
                                    {"tojson", tojson},
                                    {"pprint", pprint}};

}  // namespace

FilterTable text_filters() { return {kFilters, std::size(kFilters)}; }

}  // namespace quire::jinja
