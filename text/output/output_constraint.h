#pragma once
// What all of a model's output has to be like, in its dialect: thought, answer and calls as one
// structural tag, as engine/structured reads it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/output/output_parser.h"

namespace quire {

enum class CallDemand : std::uint8_t {
  none,       // no call is looked for
  automatic,  // calls are the model's choice; from where one begins it is held
  required,   // at least one call, and nothing else after the reasoning
};

struct OutputDemand {
  CallDemand calls = CallDemand::none;
  std::string_view tools{};  // the request's list, which is right
  std::string_view parameters_at = "function/parameters";  // JSON pointer below a tool, for errors
  bool parallel = true;      // more than one call may come
  std::vector<std::string> only{};  // the functions that may be called; empty: any

  std::string answer{};  // of an answer that is no call: JSON text of a format; empty: any text
  std::optional<int> thinking_budget{};  // tokens

  bool any_whitespace = true;  // between the tokens of JSON: at most one blank
  std::optional<std::string> whitespace_pattern{};  // in place of that
  std::string whitespace_place{};                   // JSON pointer of the pattern in the request
  // To stand inside of another document, which says what white space there is.
  bool is_part = false;
};

// JSON text {"format": …}; empty where nothing has to be constrained. The format says what the
// dialect and the reasoning are; calls need a dialect. Arguments obey the schemas of strict functions,
// and where a call is required of all.
std::string output_constraint(const OutputFormat& format, const OutputDemand& demand);

}  // namespace quire
