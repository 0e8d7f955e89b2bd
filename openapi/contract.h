#pragma once
// The contract as the program carries it: openapi.json, which is openapi.yaml in other brackets
// (tests/openapi/contract_json.py makes the one of the other and compares them).

#include <string_view>

namespace quire::openapi {

std::string_view contract_json();

}  // namespace quire::openapi
