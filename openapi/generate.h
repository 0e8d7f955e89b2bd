#pragma once
// vLLM's /inference/v1/generate: a completion of tokens, in words of its own.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "openapi/dto.h"

namespace quire::openapi {

struct GenerateRequest : CompletionRequest {
  bool wants_text = false;  // output_mode text: beside the tokens
};

// A choice, or what an event of a stream brings of it.
struct GeneratedPart {
  int index = 0;
  const std::vector<TokenId>& token_ids;
  const std::vector<TokenLogprob>* logprobs = nullptr;  // null: not asked for
  const std::string* text = nullptr;                    // null: output_mode tokens
  std::string_view finish_reason{};                     // empty: it goes on
  std::string_view stop_reason = "null";                // JSON text
};

Result<GenerateRequest> parse_generate(std::string_view body);
void append_generated(std::string& out, const GeneratedPart& part);
// output_mode as the request has it; with the prompt's tokens where return_token_ids is set.
std::string generate_json(const CompletionResponse& response, const GenerateRequest& request);

}  // namespace quire::openapi
