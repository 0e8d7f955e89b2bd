#pragma once
// Words of a command line, for programs whose parser takes any word as a flag's value.

#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace quire {

// What a word is that begins with a dash; its "=value" is not part of it.
enum class FlagWord { none, alone, with_value };

// "--port" of "--port=1".
std::string_view flag_name(std::string_view word);

struct MissingValue {
  std::string flag;    // empty: none is missing
  std::string before;  // the flag that stands where the value should; empty: nothing follows
};

// As Python's argparse: a value that begins with "--", or is a flag, is written --flag=value. So
// --api-key $KEY of a KEY that is unset does not make a key of the flag that follows.
MissingValue missing_value(std::span<const std::string> words,
                           const std::function<FlagWord(std::string_view name)>& kind_of);

}  // namespace quire
