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

// A tool that the client knows otherwise than the model does, for which all tools are functions.
struct ToolForm {
  std::string function{};  // as the model calls it
  std::string name{}, name_space{};
  bool is_custom = false;  // called with text, not with JSON
};

// What the response repeats of it is kept as JSON text; empty: the API's default.
struct ResponsesRequest : ChatCompletionRequest {
  std::optional<std::string> instructions{};  // the system message; messages do not have it
  std::optional<std::string> previous_response_id{};
  bool store = true;
  std::string said_tools{}, said_tool_choice{}, said_text{}, said_metadata{};
  std::optional<std::string> reasoning_summary{};
  std::optional<std::string> user{};
  std::vector<ToolForm> tool_forms{};
};

struct ResponseItem {
  enum class Kind : std::uint8_t { reasoning, message, function_call, custom_tool_call };
  Kind kind = Kind::message;
  std::string id{};
  std::string text{};  // of reasoning and messages
  std::vector<TokenLogprob> logprobs{};
  std::string call_id{}, name{}, name_space{};
  std::string function{}, arguments{};      // as the model called it
  std::string_view status = "in_progress";  // or completed, incomplete

  bool is_call() const { return kind == Kind::function_call || kind == Kind::custom_tool_call; }
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
// What a custom tool was called with: the text in the arguments, or all of them where the model
// wrote something else.
std::string text_of_arguments(std::string_view arguments);
// The one part of a message or of a thought.
void append_response_part(std::string& out, const ResponseItem& item);
void append_response_logprobs(std::string& out, const std::vector<TokenLogprob>& tokens);
std::string input_tokens_json(std::int64_t tokens);
std::string deleted_response_json(std::string_view id);

// The model's output, as the message that a later request finds in its conversation.
ChatMessage message_of(const std::vector<ResponseItem>& output);

}  // namespace quire::openapi
