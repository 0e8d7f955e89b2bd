#pragma once
// Where a specification that fits nothing contradicts itself.

#include <boost/json.hpp>
#include <string>

#include "engine/structured/compiled_grammar.h"

namespace quire::structured {

// The JSON pointer of the smallest part of the schema that by itself fits nothing, empty for the
// whole. Tries a few dozen parts, each for a short time.
std::string empty_part_of_schema(const boost::json::value& schema, const Slice& slice);

// Of a structural tag's document: that of the first of its schemas that fits nothing, after the
// schema's "place". Empty where it is none of them.
std::string empty_part_of_tag(const boost::json::value& document, const Slice& slice);

// Of a structural tag's document that is refused as a whole: the place that all its parts have in
// common, as far as they name any.
std::string common_place_of_tag(const boost::json::value& document);

}  // namespace quire::structured
