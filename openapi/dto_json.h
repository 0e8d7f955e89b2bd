#pragma once
// JSON text ⇄ dto.h. Parsing refuses what the contract refuses and names the place, as in
// messages[2].content; the error's field is that place.

#include <string>
#include <string_view>

#include "base/result.h"
#include "openapi/dto.h"

namespace quire::openapi {

Result<ChatCompletionRequest> parse_chat_completion(std::string_view body);
Result<CompletionRequest> parse_completion(std::string_view body);
Result<TokenizeRequest> parse_tokenize(std::string_view body);
Result<DetokenizeRequest> parse_detokenize(std::string_view body);
// Anthropic's Messages API, as the chat request that it amounts to.
Result<ChatCompletionRequest> parse_messages(std::string_view body);
Result<ChatCompletionRequest> parse_count_tokens(std::string_view body);

// Gives back what a large document made this thread's parser grow to.
void shrink_parser();

std::string to_json(const ChatCompletionResponse& response);
std::string to_json(const CompletionResponse& response);
std::string to_json(const TokenizeResponse& response);
std::string to_json(const std::vector<ModelCard>& models);  // the list
std::string to_json(const ModelCard& model);
std::string detokenize_json(std::string_view prompt);
// {"error": {message, type, param, code}}; an empty param is null.
std::string error_json(std::string_view message, std::string_view type, std::string_view param,
                       int code);

// The same answer, count and error as Anthropic's Messages API words them.
std::string message_json(const ChatCompletionResponse& response);
std::string count_tokens_json(std::int64_t tokens);
std::string message_error_json(int status, std::string_view message, std::string_view request_id);
// Why it ended, as the members stop_reason and stop_sequence; `stop_reason` is JSON text.
void append_message_stop(std::string& out, std::string_view finish_reason,
                         std::string_view stop_reason);
void append_message_usage(std::string& out, const Usage& usage);

// Parts that a stream's chunks need too; appended as JSON values.
void append_usage(std::string& out, const Usage& usage);
void append_chat_logprobs(std::string& out, const std::vector<TokenLogprob>& tokens);
// null where there are none.
void append_prompt_logprobs(std::string& out, const std::optional<std::vector<TokenLogprob>>& tokens);
void append_completion_logprobs(std::string& out, const CompletionLogprobs& logprobs);
// Of what follows the last token, in characters of what the tokens read as.
std::int64_t end_offset(const CompletionLogprobs& logprobs);

}  // namespace quire::openapi
