#pragma once
// OpenAI's Responses API: the schemas of openapi.yaml as plain structs. A request is a chat request
// with what only this API has beside it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "openapi/dto.h"

namespace quire::openapi {

// What the response repeats of it is kept as JSON text; empty: the API's default.
struct ResponsesRequest : ChatCompletionRequest {
  std::optional<std::string> instructions{};  // the system message; messages do not have it
  std::optional<std::string> previous_response_id{};
  bool store = true;
  std::string said_tools{}, said_tool_choice{}, said_text{}, said_metadata{};
  std::optional<std::string> reasoning_summary{};
  std::optional<std::string> user{};
};

struct ResponseItem {
  enum class Kind : std::uint8_t { reasoning, message, function_call };
  Kind kind = Kind::message;
  std::string id{};
  std::string text{};  // of reasoning and messages
  std::vector<TokenLogprob> logprobs{};
  std::string call_id{}, name{}, arguments{};
  std::string_view status = "in_progress";  // or completed, incomplete
};

struct ResponseObject {
  std::string id{};
  std::int64_t created = 0;
  std::optional<std::int64_t> completed{};
  std::string model{};
  std::string_view status = "in_progress";  // or completed, incomplete, failed
  std::string error{};                      // of a failed one
  std::vector<ResponseItem> output{};
  std::optional<Usage> usage{};
  double temperature = 1, top_p = 1;  // as it was sampled by
};

Result<ResponsesRequest> parse_responses(std::string_view body);

void append_response(std::string& out, const ResponsesRequest& request,
                     const ResponseObject& response);
void append_response_item(std::string& out, const ResponseItem& item);
// The one part of a message or of a thought.
void append_response_part(std::string& out, const ResponseItem& item);
void append_response_logprobs(std::string& out, const std::vector<TokenLogprob>& tokens);
std::string input_tokens_json(std::int64_t tokens);
std::string deleted_response_json(std::string_view id);

// The model's output, as the message that a later request finds in its conversation.
ChatMessage message_of(const std::vector<ResponseItem>& output);

}  // namespace quire::openapi
