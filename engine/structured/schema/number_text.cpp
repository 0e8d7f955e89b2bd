#include "engine/structured/schema/number_text.h"

#include <algorithm>

#include "engine/structured/regex/pattern.h"

namespace quire::structured {

namespace {

unsigned digit_of(char c) { return static_cast<unsigned>(c - '0'); }

}  // namespace

NumberText::NumberText(RegexStore& store) : store_(store) {
  const auto pattern = [&](const char* text) {
    return parse_pattern(store, text, PatternUse::whole, Spelling::plain);
  };
  fraction_ = pattern("(\\.[0-9]+)?");
  unsigned_ = pattern("(0|[1-9][0-9]*)(\\.[0-9]+)?");
  integers_ = pattern("-?(0|[1-9][0-9]*)");
  bounded_integers_ = pattern("0|-?[1-9][0-9]*");
  decimals_ = pattern("-?(0|[1-9][0-9]*)(\\.[0-9]+)?");
}

NumberText::Magnitude NumberText::split(const std::string& decimal) {
  Magnitude result;
  std::string text = decimal;
  if (!text.empty() && text[0] == '-') {
    result.negative = true;
    text.erase(0, 1);
  }
  const std::size_t point = text.find('.');
  result.whole = text.substr(0, point);
  if (point != std::string::npos) result.fraction = text.substr(point + 1);
  while (!result.fraction.empty() && result.fraction.back() == '0') result.fraction.pop_back();
  result.whole.erase(0, std::min(result.whole.find_first_not_of('0'), result.whole.size() - 1));
  if (result.whole == "0" && result.fraction.empty()) result.negative = false;
  return result;
}

RegexId NumberText::digits(unsigned first, unsigned last) {
  if (first > last) return kNothing;
  return store_.bytes(ByteSet::range(static_cast<std::uint8_t>('0' + first),
                                     static_cast<std::uint8_t>('0' + last)));
}

RegexId NumberText::any_digits(std::uint32_t min, std::uint32_t max) {
  return store_.repeat(digits(0, 9), min, max);
}

RegexId NumberText::signed_part(RegexId magnitude) {
  return store_.concat(store_.literal("-"), magnitude);
}

// What differs at a digit is decided there; `rest` goes on behind an equal one.
RegexId NumberText::at_digit(char bound, unsigned first, unsigned last, RegexId decided,
                             RegexId rest) {
  const RegexId other = store_.concat(digits(first, last), decided);
  return store_.any_of({other, store_.concat(store_.literal(std::string_view(&bound, 1)), rest)});
}

// The fraction, its point included, of numbers with an equal whole part.
RegexId NumberText::fraction_above(const std::string& bound, bool exclusive) {
  const RegexId positive = store_.concat({any_digits(0), digits(1, 9), any_digits(0)});
  const RegexId point = store_.literal(".");
  if (bound.empty()) return exclusive ? store_.concat(point, positive) : fraction_;
  RegexId rest = exclusive ? positive : any_digits(0);
  for (std::size_t i = bound.size(); i-- > 0;) {
    rest = at_digit(bound[i], digit_of(bound[i]) + 1, 9, any_digits(0), rest);
  }
  return store_.concat(point, rest);
}

RegexId NumberText::fraction_below(const std::string& bound, bool exclusive) {
  const RegexId point = store_.literal(".");
  const RegexId zeros = store_.repeat(digits(0, 0), 0);
  if (bound.empty()) {
    if (exclusive) return kNothing;
    return store_.optional(store_.concat({point, digits(0, 0), zeros}));
  }
  RegexId rest = exclusive ? kNothing : zeros;
  for (std::size_t i = bound.size(); i-- > 0;) {
    const unsigned digit = digit_of(bound[i]);
    rest = at_digit(bound[i], digit > 0 ? 0 : 1, digit > 0 ? digit - 1 : 0, any_digits(0), rest);
    if (i > 0) rest = store_.optional(rest);  // what ends here has zeros
  }
  return store_.optional(store_.concat(point, rest));
}

RegexId NumberText::above(const Magnitude& bound, bool exclusive) {
  const auto length = static_cast<std::uint32_t>(bound.whole.size());
  RegexId rest = fraction_above(bound.fraction, exclusive);
  for (std::uint32_t i = length; i-- > 0;) {
    const RegexId decided = store_.concat(any_digits(length - 1 - i, length - 1 - i), fraction_);
    rest = at_digit(bound.whole[i], digit_of(bound.whole[i]) + 1, 9, decided, rest);
  }
  return store_.any_of({rest, store_.concat({digits(1, 9), any_digits(length), fraction_})});
}

RegexId NumberText::below(const Magnitude& bound, bool exclusive) {
  const auto length = static_cast<std::uint32_t>(bound.whole.size());
  RegexId rest = fraction_below(bound.fraction, exclusive);
  for (std::uint32_t i = length; i-- > 0;) {
    const RegexId decided = store_.concat(any_digits(length - 1 - i, length - 1 - i), fraction_);
    const unsigned digit = digit_of(bound.whole[i]), first = i == 0 && length > 1 ? 1 : 0;
    rest = at_digit(bound.whole[i], digit > first ? first : 1, digit > first ? digit - 1 : 0,
                    decided, rest);
  }
  if (length == 1) return rest;
  return store_.any_of({rest, store_.concat(digits(0, 0), fraction_),
                        store_.concat({digits(1, 9), any_digits(0, length - 2), fraction_})});
}

RegexId NumberText::at_least(const NumberBound& bound) {
  const Magnitude magnitude = split(bound.value);
  if (!magnitude.negative) return above(magnitude, bound.exclusive);
  return store_.any_of({unsigned_, signed_part(below(magnitude, bound.exclusive))});
}

RegexId NumberText::at_most(const NumberBound& bound) {
  const Magnitude magnitude = split(bound.value);
  if (magnitude.negative) return signed_part(above(magnitude, bound.exclusive));
  const bool zero = magnitude.whole == "0" && magnitude.fraction.empty();
  // -0 is 0, so it is not below it.
  const RegexId negative = zero && bound.exclusive ? above({"0", "", false}, true) : unsigned_;
  return store_.any_of({signed_part(negative), below(magnitude, bound.exclusive)});
}

RegexId NumberText::equal_to(const std::string& value) {
  const Magnitude magnitude = split(value);
  const RegexId zeros = store_.repeat(digits(0, 0), 0);
  const RegexId point = store_.literal(".");
  RegexId id = store_.literal(magnitude.whole);
  if (magnitude.fraction.empty()) {
    id = store_.concat(id, store_.optional(store_.concat({point, digits(0, 0), zeros})));
  } else {
    id = store_.concat({id, point, store_.literal(magnitude.fraction), zeros});
  }
  if (magnitude.negative) return signed_part(id);
  const bool zero = magnitude.whole == "0" && magnitude.fraction.empty();
  return zero ? store_.concat(store_.optional(store_.literal("-")), id) : id;
}

RegexId NumberText::multiple_of(const std::string& divisor, const std::string& pointer) {
  const Magnitude magnitude = split(divisor);
  const std::string all = magnitude.whole + magnitude.fraction;
  constexpr std::size_t kMostDigits = 15;
  if (all.size() > kMostDigits) {
    throw GrammarFailure(GrammarErrorKind::unsupported,
                         "\"multipleOf\" is supported up to 15 digits", pointer + "/multipleOf");
  }
  // There is a state for each remainder. Of a power of ten any number becomes a multiple by zeros.
  constexpr std::uint64_t kMostRemainders = 100'000;
  const std::uint64_t unit = std::stoull(all);
  std::uint64_t hard = unit;
  for (const unsigned prime : {2u, 5u}) {
    while (hard % prime == 0) hard /= prime;
  }
  if (hard > kMostRemainders) {
    throw GrammarFailure(GrammarErrorKind::unsupported,
                         "\"multipleOf\" is supported up to 100000 in units of its last digit, "
                         "not counting factors of 2 and 5",
                         pointer + "/multipleOf");
  }
  const RegexId value = store_.multiple(unit, static_cast<int>(magnitude.fraction.size()));
  return store_.concat(store_.optional(store_.literal("-")), value);
}

}  // namespace quire::structured
