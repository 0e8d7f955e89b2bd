#include "engine/structured/exact_json.h"

#include <boost/json/basic_parser_impl.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/decimal.h"

namespace quire::structured {
namespace {

namespace json = boost::json;
using boost::system::error_code;

// What the parser finds, on a stack of values.
class Values {
 public:
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();

  Values() { stack_.reset(); }
  json::value release() { return stack_.release(); }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) { return true; }
  bool on_object_end(std::size_t n, error_code&) { return stack_.push_object(n), true; }
  bool on_array_begin(error_code&) { return true; }
  bool on_array_end(std::size_t n, error_code&) { return stack_.push_array(n), true; }
  bool on_key_part(json::string_view s, std::size_t, error_code&) {
    return stack_.push_chars(s), true;
  }
  bool on_key(json::string_view s, std::size_t, error_code&) { return stack_.push_key(s), true; }
  bool on_string_part(json::string_view s, std::size_t, error_code&) {
    return stack_.push_chars(s), true;
  }
  bool on_string(json::string_view s, std::size_t, error_code&) {
    return stack_.push_string(s), true;
  }
  bool on_number_part(json::string_view s, error_code&) { return number_.append(s), true; }
  bool on_int64(std::int64_t value, json::string_view, error_code&) {
    number_.clear();
    return stack_.push_int64(value), true;
  }
  bool on_uint64(std::uint64_t value, json::string_view, error_code&) {
    number_.clear();
    return stack_.push_uint64(value), true;
  }
  bool on_double(double, json::string_view s, error_code&) {
    number_.append(s);
    stack_.push_double(exact_double(number_).value_or(std::numeric_limits<double>::quiet_NaN()));
    number_.clear();
    return true;
  }
  bool on_bool(bool value, error_code&) { return stack_.push_bool(value), true; }
  bool on_null(error_code&) { return stack_.push_null(), true; }
  bool on_comment_part(json::string_view, error_code&) { return true; }
  bool on_comment(json::string_view, error_code&) { return true; }

 private:
  json::value_stack stack_;
  std::string number_;  // parts of one that are behind
};

}  // namespace

json::value parse_exact(std::string_view text, std::size_t max_depth, error_code& error) {
  json::parse_options options;
  options.max_depth = max_depth;
  json::basic_parser<Values> parser(options);
  const std::size_t read = parser.write_some(false, text.data(), text.size(), error);
  if (!error && read < text.size()) error = json::error::extra_data;
  return error ? json::value() : parser.handler().release();
}

bool is_exact_number(const json::value& value) {
  return value.is_number() && !(value.is_double() && std::isnan(value.get_double()));
}

bool has_lost_number(const json::value& value) {
  if (value.is_array()) return std::ranges::any_of(value.get_array(), has_lost_number);
  if (value.is_object()) {
    return std::ranges::any_of(value.get_object(),
                               [](const auto& member) { return has_lost_number(member.value()); });
  }
  return value.is_number() && !is_exact_number(value);
}

}  // namespace quire::structured
