#pragma once
// A JSON Schema read into fields, subschemas by number. Every keyword is known, refused by name, or
// an annotation; nothing is passed over in silence.

#include <boost/json.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/structured/budget.h"

namespace quire::structured {

namespace json = boost::json;

using SchemaId = std::uint32_t;

enum Type : std::uint8_t {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,   // numbers that are whole
  kFraction = 8,  // numbers that are not
  kString = 16,
  kArray = 32,
  kObject = 64,
  kAllTypes = 127,
  kNumber = kInteger | kFraction,
};

struct Schema {
  std::string pointer;       // where it stands
  bool nothing = false;      // the schema `false`
  bool constrained = false;  // has a keyword that is not an annotation
  int keywords = 0;          // of those
  std::uint8_t types = kAllTypes;
  std::optional<std::vector<json::value>> values;  // enum and const
  std::string values_keyword;                      // which of the two, for errors

  std::optional<std::string> minimum, maximum, multiple_of;  // decimals without exponent
  bool exclusive_minimum = false, exclusive_maximum = false;

  std::optional<std::uint32_t> min_length, max_length;
  std::optional<std::string> pattern, format, content_encoding;

  std::vector<SchemaId> prefix_items;
  std::optional<SchemaId> items, contains, unevaluated_items;
  std::optional<std::uint32_t> min_items, max_items, min_contains, max_contains;
  bool unique_items = false;

  std::vector<std::pair<std::string, SchemaId>> properties, pattern_properties;
  std::optional<SchemaId> additional_properties, property_names, unevaluated_properties;
  std::vector<std::string> required;
  std::optional<std::uint32_t> min_properties, max_properties;
  std::vector<std::pair<std::string, std::vector<std::string>>> dependent_required;
  std::vector<std::pair<std::string, SchemaId>> dependent_schemas;

  std::vector<SchemaId> all_of, any_of, one_of;
  std::optional<SchemaId> negated, if_, then_, else_, ref;
};

// Owns the schemas of one document.
class SchemaDocument {
 public:
  // Throws GrammarFailure with the pointer of the place.
  SchemaDocument(const json::value& root, Meter& meter);

  const Schema& at(SchemaId id) const { return schemas_[id]; }
  SchemaId root() const { return 0; }

 private:
  SchemaId read(const json::value& value, const std::string& pointer, int depth);
  void read_keyword(Schema& schema, std::string_view key, const json::value& value,
                    const json::object& object, int depth);
  void read_format(Schema& schema);
  Schema or_null(Schema schema);
  bool read_validation(Schema& schema, std::string_view key, const json::value& value,
                       const json::object& object);
  bool read_applicator(Schema& schema, std::string_view key, const json::value& value,
                       const json::object& object, int depth);
  void read_items(Schema& schema, const json::value& value, const json::object& object, int depth);
  void read_dependencies(Schema& schema, const json::value& value, int depth);
  void read_number_bound(Schema& schema, std::string_view key, const json::value& value,
                         const json::object& object);
  SchemaId child(const Schema& schema, std::string_view key, const json::value& value, int depth);
  std::vector<SchemaId> children(const Schema& schema, std::string_view key,
                                 const json::value& value, int depth);
  std::vector<std::pair<std::string, SchemaId>> members(const Schema& schema, std::string_view key,
                                                        const json::value& value, int depth);
  SchemaId resolve(const std::string& reference, const std::string& from, int depth);
  std::optional<std::string> find_anchor(const json::value& value, std::string_view name,
                                         const std::string& pointer, int depth) const;

  const json::value& root_value_;
  Meter& meter_;
  std::vector<Schema> schemas_;
  std::map<std::string, SchemaId> by_pointer_;
};

std::string escaped_pointer(std::string_view token);
// A JSON number as a decimal without exponent: "-0.05".
std::string decimal_of(const json::value& number);

}  // namespace quire::structured
