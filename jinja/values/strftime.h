#pragma once
// Python's strftime in the C locale.

#include <ctime>
#include <string>
#include <string_view>

namespace quire::jinja {

std::string format_time(std::string_view format, const std::tm& time);

}  // namespace quire::jinja
