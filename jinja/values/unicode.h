#pragma once
// Unicode as Python's str sees it, on UTF-8 (Unicode 14). All text is valid UTF-8.

#include <cstddef>
#include <string>
#include <string_view>

namespace quire::jinja::unicode {

bool valid(std::string_view text);
std::size_t count(std::string_view text);  // code points
void append(std::string& out, char32_t c);
// Reads the code point at `position` and moves past it.
char32_t next(std::string_view text, std::size_t& position);
// The code point that ends before `position`; moves to its start.
char32_t previous(std::string_view text, std::size_t& position);
// Byte offset of the n-th code point from `from`; the end where there are fewer.
std::size_t skip(std::string_view text, std::size_t n, std::size_t from = 0);

bool is_space(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
int decimal_value(char32_t c);  // of a decimal digit of any script
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_alnum(char32_t c);
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);
bool is_printable(char32_t c);
bool is_word(char32_t c);  // \w of a regular expression
bool is_identifier(std::string_view text);

// Full mappings: one character may become several, a final sigma is seen.
std::string lower(std::string_view text);
std::string upper(std::string_view text);
std::string title(std::string_view text);
std::string capitalize(std::string_view text);
std::string swap_case(std::string_view text);
std::string fold_case(std::string_view text);

// Without white space (or, where given, without any of `chars`) at the chosen ends.
std::string_view strip(std::string_view text, bool left, bool right);
std::string_view strip(std::string_view text, std::string_view chars, bool left, bool right);

}  // namespace quire::jinja::unicode
