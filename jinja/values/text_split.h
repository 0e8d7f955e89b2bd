#pragma once
// Cutting and replacing in texts, as Python's str does; the pieces are views of the text.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire::jinja {

class Evaluation;

// At most `max_split` cuts; any number where it is negative.
std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    std::int64_t max_split);
std::vector<std::string_view> rsplit(std::string_view text, std::string_view separator,
                                     std::int64_t max_split);
std::vector<std::string_view> split_space(std::string_view text, std::int64_t max_split);
std::vector<std::string_view> rsplit_space(std::string_view text, std::int64_t max_split);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

std::string replace_text(Evaluation& evaluation, std::string_view text, std::string_view old_part,
                         std::string_view new_part, std::int64_t limit);

}  // namespace quire::jinja
