#pragma once
// Whether a given value fits: for the values of enum and const, which are known in full.

#include "engine/structured/regex/regex_store.h"
#include "engine/structured/schema/disjuncts.h"

namespace quire::structured {

class ValueCheck {
 public:
  ValueCheck(SchemaDocument& document, RegexStore& store, Meter& meter)
      : document_(document), store_(store), meter_(meter) {}

  bool fits(const Signed& what, const json::value& value) {
    return fits(what.schema, value) != what.negative;
  }
  bool fits(SchemaId id, const json::value& value);
  // `source`: the schema whose enum the value was taken from, which it need not be looked up in.
  bool fits(const Disjunct& disjunct, const json::value& value, const Schema* source = nullptr);
  // The keywords of the schema itself, without allOf and the like.
  bool fits_own(const Schema& schema, const json::value& value, bool listed = false);
  bool matches(const std::string& pattern, std::string_view text, const std::string& pointer);
  bool in_format(const std::string& format, std::string_view text, const std::string& pointer);

 private:
  bool fits_number(const Schema& schema, const json::value& value);
  bool fits_string(const Schema& schema, std::string_view text);
  bool fits_array(const Schema& schema, const json::array& array);
  bool fits_object(const Schema& schema, const json::object& object);
  bool fits_keyword(const Schema& schema, const std::string& keyword, const json::value& value);
  bool fits_in_place(const Schema& schema, const json::value& value);

  SchemaDocument& document_;
  RegexStore& store_;
  Meter& meter_;
  int depth_ = 0;
};

std::uint8_t type_of_value(const json::value& value);
std::uint32_t count_chars(std::string_view utf8);
// 1 and 1.0 are one value.
bool same_value(const json::value& a, const json::value& b);

}  // namespace quire::structured
