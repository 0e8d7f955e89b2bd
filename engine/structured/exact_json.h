#pragma once
// JSON whose numbers are not rounded. boost::json holds integers of 64 bits and doubles; a number
// that is none of these becomes NaN, which no JSON text has, so that whoever needs it can refuse
// it.

#include <boost/json.hpp>
#include <string_view>

namespace quire::structured {

boost::json::value parse_exact(std::string_view text, std::size_t max_depth,
                               boost::system::error_code& error);

// False: one that was not held, or no number.
bool is_exact_number(const boost::json::value& value);
// In it or anywhere below it is a number that was not held.
bool has_lost_number(const boost::json::value& value);

}  // namespace quire::structured
