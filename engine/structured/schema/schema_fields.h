#pragma once
// Single keywords of a schema read with their types checked, and how their faults are told.

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire::structured {

[[noreturn]] void schema_syntax(const std::string& pointer, const std::string& what);
[[noreturn]] void schema_syntax(const std::string& pointer, std::string_view key,
                                std::string_view what);
[[noreturn]] void schema_unsupported(const std::string& pointer, std::string_view key,
                                     std::string_view what);

std::string string_of(const std::string& pointer, std::string_view key,
                      const boost::json::value& value);
std::vector<std::string> strings_of(const std::string& pointer, std::string_view key,
                                    const boost::json::value& value);
// As a decimal without exponent. What was too long to be held is refused.
std::string number_of(const std::string& pointer, std::string_view key,
                      const boost::json::value& value);
std::uint32_t count_of(const std::string& pointer, std::string_view key,
                       const boost::json::value& value);
bool bool_of(const std::string& pointer, std::string_view key, const boost::json::value& value);

}  // namespace quire::structured
