#pragma once
// vLLM's /inference/v1/generate: a completion of tokens, in words of its own.

#include <string>
#include <string_view>

#include "base/result.h"
#include "openapi/dto.h"

namespace quire::openapi {

Result<CompletionRequest> parse_generate(std::string_view body);
std::string generate_json(const CompletionResponse& response);

}  // namespace quire::openapi
