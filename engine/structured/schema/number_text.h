#pragma once
// Numbers in decimal notation, without exponent, by their bounds.

#include <optional>
#include <string>

#include "engine/structured/regex/regex_store.h"

namespace quire::structured {

struct NumberBound {
  std::string value;  // decimal, without exponent
  bool exclusive = false;
};

class NumberText {
 public:
  explicit NumberText(RegexStore& store);

  RegexId integers() const { return integers_; }                  // -?(0|[1-9][0-9]*)
  RegexId bounded_integers() const { return bounded_integers_; }  // without -0
  RegexId decimals() const { return decimals_; }                  // and a fraction, perhaps
  RegexId at_least(const NumberBound& bound);
  RegexId at_most(const NumberBound& bound);
  RegexId multiple_of(const std::string& divisor, const std::string& pointer);
  RegexId equal_to(const std::string& value);  // with any zeros at the end

 private:
  struct Magnitude {
    std::string whole, fraction;  // without needless zeros; whole is "0" at least
    bool negative = false;
  };
  static Magnitude split(const std::string& decimal);
  RegexId at_digit(char bound, unsigned first, unsigned last, RegexId decided, RegexId rest);
  RegexId above(const Magnitude& bound, bool exclusive);  // without a sign
  RegexId below(const Magnitude& bound, bool exclusive);
  RegexId fraction_above(const std::string& digits, bool exclusive);
  RegexId fraction_below(const std::string& digits, bool exclusive);
  RegexId digits(unsigned first, unsigned last);
  RegexId any_digits(std::uint32_t min, std::uint32_t max = kUnbounded);
  RegexId signed_part(RegexId magnitude);

  RegexStore& store_;
  RegexId unsigned_, integers_, bounded_integers_, decimals_, fraction_;
};

}  // namespace quire::structured
