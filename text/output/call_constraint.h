#pragma once
// What a model has to write so that it calls a tool, in its dialect: a structural tag, as
// engine/structured reads it, made of the same lines that the parser reads calls by.

#include <string>
#include <string_view>

#include "text/output/output_parser.h"

namespace quire {

enum class CallDemand : std::uint8_t {
  strict,    // calls are the model's choice; those of strict functions obey their schema
  required,  // at least one call, and nothing else after the reasoning
};

struct CallConstraint {
  CallDemand demand = CallDemand::required;
  bool parallel = true;  // more than one call may come
  std::string only{};    // the one function that may be called; empty: any
};

// JSON text {"format": …}; empty where nothing has to be constrained (strict, and no function is).
// `tools`: the request's list, which is right. The format says what the dialect and the reasoning
// are. Text parameters of the dialects that write values bare are held to their enum, else free.
std::string call_constraint(const OutputFormat& format, std::string_view tools,
                            const CallConstraint& wanted);

}  // namespace quire
