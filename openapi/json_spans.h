#pragma once
// Places in a JSON text, for what a parser's values do not say: how numbers were written.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace quire::openapi {

struct NumberSpan {
  std::size_t begin, end;  // in the text
  std::string path;        // of its member, as in stop_token_ids[2]
  std::string pointer;     // the same as /stop_token_ids/2
};

// Of these three any bytes may be searched; at most the first `most` numbers are given.
// Numbers that no 64-bit integer and no double can hold.
std::vector<NumberSpan> unfit_numbers(std::string_view json, std::size_t most);
// Numbers with a fraction or an exponent that no double holds to their last digit.
std::vector<NumberSpan> lossy_fractions(std::string_view json, std::size_t most);
// The value that a JSON pointer leads to, as it is written; empty where it leads nowhere. Of members with one name
// the first counts.
std::string_view value_at(std::string_view json, std::string_view pointer);

}  // namespace quire::openapi
