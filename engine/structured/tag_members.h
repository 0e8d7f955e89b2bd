#pragma once
// Which members a structural tag and its formats may have. Throw GrammarFailure.

#include <boost/json.hpp>
#include <string>
#include <string_view>

#include "engine/structured/grammar_error.h"

namespace quire::structured {

[[noreturn]] void tag_fault(const std::string& what, const std::string& at, GrammarErrorKind kind);

// Of a client's: the outermost one is ours.
void check_tag_document(const boost::json::object& object, const std::string& at);
void check_tag_format(const boost::json::object& object, std::string_view type,
                      const std::string& at);

}  // namespace quire::structured
