// Answers as Anthropic's Messages API words them.

#include <array>

#include "openapi/chat_terms.h"
#include "openapi/dto_json.h"
#include "openapi/json_writer.h"

namespace quire::openapi {

namespace {

struct ErrorRow {
  int status;
  std::string_view type;
};
constexpr std::array kErrors = {
    ErrorRow{401, "authentication_error"}, ErrorRow{403, "permission_error"},
    ErrorRow{404, "not_found_error"},      ErrorRow{413, "request_too_large"},
    ErrorRow{429, "rate_limit_error"},     ErrorRow{503, "overloaded_error"},
};

std::string_view error_type(int status) {
  for (const ErrorRow& row : kErrors) {
    if (row.status == status) return row.type;
  }
  return status < 500 ? "invalid_request_error" : "api_error";
}

// The input of a call that broke off is not JSON yet: the stop reason says that it is not whole.
std::string_view input_of(const ToolCall& call) {
  const std::string_view arguments = call.function.arguments;
  return is_json_object(arguments) ? arguments : "{}";
}

void write_content(JsonWriter& json, const ChatChoice& choice) {
  json.begin_array();
  if (choice.reasoning) {
    json.begin_object().key("type").string("thinking").key("thinking").string(*choice.reasoning);
    json.key("signature").string("").end_object();
  }
  if (choice.content && !choice.content->empty()) {
    json.begin_object().key("type").string("text").key("text").string(*choice.content);
    json.key("citations").null().end_object();
  }
  for (const ToolCall& call : choice.tool_calls) {
    json.begin_object().key("type").string("tool_use").key("id").string(call.id);
    json.key("name").string(call.function.name).key("input").raw(input_of(call)).end_object();
  }
  json.end_array();
}

}  // namespace

void append_message_stop(std::string& out, std::string_view finish_reason,
                         std::string_view stop_reason) {
  const bool by_text = finish_reason == "stop" && stop_reason.starts_with('"');
  out += "\"stop_reason\":\"";
  if (finish_reason == "length") {
    out += "max_tokens";
  } else if (finish_reason == "tool_calls") {
    out += "tool_use";
  } else {
    out += by_text ? "stop_sequence" : "end_turn";
  }
  out.append("\",\"stop_sequence\":").append(by_text ? stop_reason : "null");
}

// Tokens that were read from the cache are not among the input tokens.
void append_message_usage(std::string& out, const Usage& usage) {
  const std::int64_t cached = usage.cached_tokens.value_or(0);
  JsonWriter json(out);
  json.begin_object().key("input_tokens").integer(usage.prompt_tokens - cached);
  json.key("cache_creation_input_tokens").integer(0);
  json.key("cache_read_input_tokens").integer(cached);
  json.key("output_tokens").integer(usage.completion_tokens);
  if (usage.reasoning_tokens) {
    json.key("output_tokens_details").begin_object();
    json.key("thinking_tokens").integer(*usage.reasoning_tokens).end_object();
  }
  json.end_object();
}

std::string message_json(const ChatCompletionResponse& response) {
  const ChatChoice& choice = response.choices.front();
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("id").string(response.id).key("type").string("message");
  json.key("role").string("assistant").key("model").string(response.model).key("content");
  write_content(json, choice);
  out += ',';
  append_message_stop(out, choice.finish_reason, choice.stop_reason);
  json.key("usage");
  append_message_usage(out, response.usage);
  if (!response.kv_transfer_params.empty())
    out.append(",\"kv_transfer_params\":").append(response.kv_transfer_params);
  out += '}';
  return out;
}

std::string count_tokens_json(std::int64_t tokens) {
  std::string out;
  JsonWriter(out).begin_object().key("input_tokens").integer(tokens).end_object();
  return out;
}

std::string message_error_json(int status, std::string_view message, std::string_view request_id) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("type").string("error").key("error").begin_object();
  json.key("type").string(error_type(status)).key("message").string(message).end_object();
  json.key("request_id").string(request_id).end_object();
  return out;
}

}  // namespace quire::openapi
