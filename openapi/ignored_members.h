#pragma once
// Members that clients send and that change nothing here: docs/api.md lists them. Their types are
// checked anyway. Only openapi/*.cpp include it.

#include "openapi/dto.h"
#include "openapi/json_reader.h"

namespace quire::openapi {

std::vector<std::string_view> ignored_members();

// Takes them out of request.unknown_members.
bool check_ignored(JsonReader& reader, simdjson::dom::object object, GenerationRequest& request);

}  // namespace quire::openapi
