#pragma once
// Template source to tokens, with trim_blocks and lstrip_blocks on and the last newline dropped.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/values/value.h"

namespace quire::jinja {

struct Token {
  enum class Type : std::uint8_t {
    data,
    variable_begin,
    variable_end,
    block_begin,
    block_end,
    name,
    text,
    number,
    op,
    end
  };
  Type type = Type::end;
  std::string text;  // of a name, operator or text literal, or the data
  Value number;
  int line = 1;

  bool is(Type other) const { return type == other; }
  bool is_op(std::string_view sign) const { return type == Type::op && text == sign; }
  bool is_name(std::string_view word) const { return type == Type::name && text == word; }
};

std::string describe(const Token& token);

// Fails (syntax) with the line. The last token is `end`.
std::vector<Token> tokenize(std::string_view source);

}  // namespace quire::jinja
