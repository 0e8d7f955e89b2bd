// Methods of texts that look for parts and ask what the characters are.

#include <algorithm>

#include "jinja/values/methods.h"
#include "jinja/values/search.h"
#include "jinja/values/sequence.h"
#include "jinja/values/text_arguments.h"
#include "jinja/values/unicode.h"

namespace quire::jinja {
namespace {

// The part of a text between two optional positions in characters, and where it begins in bytes;
// nothing where the first lies beyond the end.
struct Window {
  std::string_view text;
  std::size_t offset;
  bool exists;
};

Window window_of(const Value& self, const List& args) {
  const auto length = std::int64_t(self.text().length());
  const Value start = given(args, 1) ? args[1] : Value();
  if (is_integral(start) && start.is(Value::Kind::integer) && start.integer() > length)
    return {{}, 0, false};
  const SliceRange range = resolve({start, given(args, 2) ? args[2] : Value(), Value()}, length);
  const std::string& text = self.string();
  const std::size_t begin = unicode::skip(text, std::size_t(range.first));
  const std::size_t end = unicode::skip(text, std::size_t(range.count), begin);
  const bool reversed = given(args, 2) && range.count == 0 && !start.is_none() &&
                        resolve({Value(), args[2], Value()}, length).count < range.first;
  return {std::string_view(text).substr(begin, end - begin), begin, !reversed};
}

template <bool from_right>
std::int64_t find_in_text(Evaluation& evaluation, std::string_view method, const Value& self,
                          Arguments& arguments) {
  const List& args = positional(method, arguments, 1, 3);
  require_text(method, args[0]);
  evaluation.charge(2 * self.string().size() + args[0].string().size());
  const Window window = window_of(self, args);
  if (!window.exists) return -1;
  const std::size_t at = from_right ? find_text_last(window.text, args[0].string())
                                    : find_text(window.text, args[0].string());
  if (at == std::string_view::npos) return -1;
  return std::int64_t(
      unicode::count(std::string_view(self.string()).substr(0, window.offset + at)));
}

template <bool from_right>
Value find(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  return Value(
      find_in_text<from_right>(evaluation, from_right ? "rfind()" : "find()", self, arguments));
}

template <bool from_right>
Value index(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  const std::int64_t at =
      find_in_text<from_right>(evaluation, from_right ? "rindex()" : "index()", self, arguments);
  if (at < 0) fail(ErrorKind::value, "substring not found");
  return Value(at);
}

Value count(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  const List& args = positional("count", arguments, 1, 3);
  require_text("count()", args[0]);
  const std::string& part = args[0].string();
  evaluation.charge(self.string().size() + part.size());
  const Window window = window_of(self, args);
  if (!window.exists) return Value(0);
  if (part.empty()) return Value(std::int64_t(unicode::count(window.text) + 1));
  const TextSearch search(part);
  std::int64_t n = 0;
  for (std::size_t at = search.find(window.text); at != search.npos;
       at = search.find(window.text, at + part.size()))
    ++n;
  return Value(n);
}

template <bool at_start>
Value has_affix(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  const std::string_view method = at_start ? "startswith" : "endswith";
  const List& args = positional(method, arguments, 1, 3);
  const Window window = window_of(self, args);
  const bool many = args[0].is(Value::Kind::tuple);
  const List candidates = many ? args[0].tuple().items : List{args[0]};
  for (const Value& candidate : candidates) {
    evaluation.step();
    if (!candidate.is_string()) {
      fail(ErrorKind::type,
           (many ? "tuple for " + std::string(method) + " must only contain str, not "
                 : std::string(method) + " first arg must be str or a tuple of str, not ") +
               std::string(type_name(candidate)));
    }
    evaluation.charge(candidate.string().size());
    const bool matches = at_start ? window.text.starts_with(candidate.string())
                                  : window.text.ends_with(candidate.string());
    if (matches && window.exists) return Value(true);
  }
  return Value(false);
}

template <class Test>
bool all_characters(std::string_view text, Test test) {
  for (std::size_t i = 0; i < text.size();) {
    if (!test(unicode::next(text, i))) return false;
  }
  return true;
}

template <bool (*test)(char32_t)>
Value every(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  positional("is", arguments, 0, 0);
  evaluation.charge(self.string().size());
  return Value(!self.string().empty() && all_characters(self.string(), test));
}

Value isascii(Evaluation&, const Value& self, Arguments& arguments) {
  positional("isascii", arguments, 0, 0);
  return Value(self.text().length() == self.string().size());
}

Value isprintable(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  positional("isprintable", arguments, 0, 0);
  evaluation.charge(self.string().size());
  return Value(all_characters(self.string(), unicode::is_printable));
}

Value isidentifier(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  positional("isidentifier", arguments, 0, 0);
  evaluation.charge(self.string().size());
  return Value(unicode::is_identifier(self.string()));
}

template <bool (*wanted)(char32_t), bool (*other)(char32_t)>
Value is_case(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  positional("is", arguments, 0, 0);
  evaluation.charge(self.string().size());
  return Value(has_case(self.string(), wanted, other));
}

Value istitle(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  positional("istitle", arguments, 0, 0);
  evaluation.charge(self.string().size());
  bool inside_word = false;
  bool any = false;
  const bool good = all_characters(self.string(), [&](char32_t c) {
    const bool begins = unicode::is_upper(c) || unicode::is_title(c);
    const bool continues = unicode::is_lower(c);
    if (inside_word ? begins : continues) return false;
    inside_word = begins || continues;
    any = any || inside_word;
    return true;
  });
  return Value(good && any);
}

template <std::string (*mapping)(std::string_view)>
Value mapped(Evaluation& evaluation, const Value& self, Arguments& arguments) {
  positional("case mapping", arguments, 0, 0);
  evaluation.charge(8 * self.string().size());  // slower than copying
  return same_safety(evaluation, self, mapping(self.string()));
}

}  // namespace

bool has_case(std::string_view text, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  bool any = false;
  const bool good = all_characters(text, [&](char32_t c) {
    any = any || wanted(c);
    return !other(c) && !unicode::is_title(c);
  });
  return good && any;
}

Method find_text_search_method(std::string_view name) {
  static constexpr NamedMethod kMethods[] = {{"startswith", has_affix<true>},
                                             {"endswith", has_affix<false>},
                                             {"find", find<false>},
                                             {"rfind", find<true>},
                                             {"index", index<false>},
                                             {"rindex", index<true>},
                                             {"count", count}};
  return find_in(kMethods, name);
}

Method find_text_case_method(std::string_view name) {
  using namespace unicode;
  static constexpr NamedMethod kMethods[] = {{"upper", mapped<upper>},
                                             {"lower", mapped<lower>},
                                             {"title", mapped<title>},
                                             {"capitalize", mapped<capitalize>},
                                             {"swapcase", mapped<swap_case>},
                                             {"casefold", mapped<fold_case>},
                                             {"isalpha", every<is_alpha>},
                                             {"isalnum", every<is_alnum>},
                                             {"isdigit", every<is_digit>},
                                             {"isdecimal", every<is_decimal>},
                                             {"isnumeric", every<is_numeric>},
                                             {"isspace", every<is_space>},
                                             {"isascii", isascii},
                                             {"isprintable", isprintable},
                                             {"isidentifier", isidentifier},
                                             {"islower", is_case<is_lower, is_upper>},
                                             {"isupper", is_case<is_upper, is_lower>},
                                             {"istitle", istitle}};
  return find_in(kMethods, name);
}

}  // namespace quire::jinja
