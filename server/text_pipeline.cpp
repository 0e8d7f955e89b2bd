#include "server/text_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace quire {

namespace {

using jinja::Dict;
using jinja::Value;
using openapi::ChatCompletionRequest;

// Replies of models carry the arguments as JSON text; templates want to walk them.
Value arguments_value(const std::string& arguments) {
  try {
    Value value = jinja::parse_json(arguments.empty() ? "{}" : arguments);
    if (value.is(Value::Kind::dict)) return value;
  } catch (const Failure&) {
  }
  return Value(arguments);
}

Value tool_call_value(const openapi::ToolCall& call) {
  Dict function, entry;
  function.set("name", Value(call.function.name));
  function.set("arguments", arguments_value(call.function.arguments));
  if (!call.id.empty()) entry.set("id", Value(call.id));
  entry.set("type", Value("function"));
  entry.set("function", Value(std::move(function)));
  return Value(std::move(entry));
}

Value message_value(const openapi::ChatMessage& message) {
  Dict entry;
  entry.set("role", Value(message.role));
  entry.set("content", Value(message.content.value_or("")));
  if (message.reasoning) {
    entry.set("reasoning", Value(*message.reasoning));
    entry.set("reasoning_content", Value(*message.reasoning));
  }
  if (message.name) entry.set("name", Value(*message.name));
  if (message.tool_call_id) entry.set("tool_call_id", Value(*message.tool_call_id));
  if (!message.tool_calls.empty()) {
    jinja::List calls;
    for (const auto& call : message.tool_calls) calls.push_back(tool_call_value(call));
    entry.set("tool_calls", Value(std::move(calls)));
  }
  return Value(std::move(entry));
}

bool shows_tools(const ChatCompletionRequest& request, const TextDefaults& defaults) {
  if (request.tools.empty()) return false;
  return !(defaults.exclude_tools_when_none && request.tool_choice == openapi::ToolChoice::none);
}

ChatTemplateInput template_input(const ChatCompletionRequest& request,
                                 const TextDefaults& defaults) {
  ChatTemplateInput input;
  jinja::List messages;
  for (const auto& message : request.messages) messages.push_back(message_value(message));
  input.messages = Value(std::move(messages));
  if (shows_tools(request, defaults)) input.tools = jinja::parse_json(request.tools);
  if (!request.documents.empty()) input.documents = jinja::parse_json(request.documents);
  input.add_generation_prompt = request.add_generation_prompt;
  input.continue_final_message = request.continue_final_message;
  input.kwargs = defaults.template_kwargs;
  if (request.reasoning_effort) {
    input.kwargs.set("reasoning_effort", Value(*request.reasoning_effort));
  }
  if (!request.chat_template_kwargs.empty()) {
    const Value kwargs = jinja::parse_json(request.chat_template_kwargs);
    for (const Dict::Entry& entry : kwargs.dict()) input.kwargs.set(entry.key, entry.value);
  }
  return input;
}

Error bad_request(std::string detail, std::string field = {}) {
  return {ErrorCode::invalid_argument, std::move(detail), std::move(field)};
}

// A prompt that goes on with the assistant's words may stop in the middle of a thought.
bool opens_reasoning(std::string_view prompt, const ReasoningFormat& format, bool continues) {
  const auto end = prompt.find_last_not_of(" \t\r\n");
  const auto text = prompt.substr(0, end == prompt.npos ? 0 : end + 1);
  for (const std::string& open : format.open) {
    if (text.ends_with(open)) return true;
    const auto opened = text.rfind(open);
    const auto closed = text.rfind(format.close.front());
    if (continues && opened != text.npos && (closed == text.npos || closed < opened)) return true;
  }
  return false;
}

void add_special(std::vector<TokenId>& ids, const Tokenizer& tokenizer,
                 const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    if (const auto id = tokenizer.token_to_id(text); id && tokenizer.is_special(*id)) {
      ids.push_back(*id);
    }
  }
  std::sort(ids.begin(), ids.end());
}

}  // namespace

TextPipeline::TextPipeline(std::unique_ptr<const Tokenizer> tokenizer,
                           std::optional<ChatTemplate> chat_template, TextDefaults defaults)
    : tokenizer_(std::move(tokenizer)),
      template_(std::move(chat_template)),
      defaults_(std::move(defaults)) {
  for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id) {
    longest_token_ = std::max(longest_token_, tokenizer_->id_to_token(id).size());
  }
  if (defaults_.reasoning) {
    add_special(reasoning_markup_, *tokenizer_, defaults_.reasoning->markers());
  }
  all_markup_ = reasoning_markup_;
  if (defaults_.dialect) add_special(all_markup_, *tokenizer_, defaults_.dialect->markers());
}

Result<std::string> TextPipeline::render(const ChatCompletionRequest& request) const {
  if (request.chat_template && !defaults_.trust_request_chat_template) {
    return bad_request(
        "chat_template in a request is refused; start the server with "
        "TextDefaults::trust_request_chat_template to allow it",
        "chat_template");
  }
  if (!request.chat_template && !template_) {
    return bad_request(
        "The model has no chat template; give one with TextDefaults::template_was_given");
  }
  try {
    const ChatTemplateInput input = template_input(request, defaults_);
    RenderResult rendered = request.chat_template
                                ? ChatTemplate::parse(*request.chat_template).render(input)
                                : template_->render(input);
    if (!rendered) return rendered.error->to_error();
    return std::move(rendered.text);
  } catch (const Failure& failure) {
    return failure.error();
  } catch (const TemplateError& error) {
    return error.to_error();
  }
}

Result<ChatPrompt> TextPipeline::chat_prompt(const ChatCompletionRequest& request,
                                             std::int64_t max_tokens) const {
  auto text = render(request);
  if (!text) return text.error();
  auto ids = encode(*text, request.add_special_tokens.value_or(false), max_tokens);
  if (!ids) return ids.error();
  const bool starts_thinking =
      defaults_.reasoning &&
      opens_reasoning(*text, *defaults_.reasoning, request.continue_final_message);
  return ChatPrompt{std::move(*ids), starts_thinking};
}

Result<void> TextPipeline::check_length(std::size_t bytes, std::int64_t max_tokens) const {
  const auto at_least = static_cast<std::int64_t>(bytes / longest_token_);
  if (at_least <= max_tokens) return {};
  return bad_request(
      fmt::format("This model's maximum context length is {} tokens. However, your prompt has "
                  "{} characters and so at least {} input tokens. Please reduce its length.",
                  max_tokens, bytes, at_least),
      "input_tokens");
}

Result<std::vector<TokenId>> TextPipeline::encode(std::string_view text, bool add_special_tokens,
                                                  std::int64_t max_tokens) const {
  if (const auto ok = check_length(text.size(), max_tokens); !ok) return ok.error();
  return tokenizer_->encode(text, add_special_tokens);
}

Result<Tokenizer::Pair> TextPipeline::encode_pair(const std::string& query,
                                                  const std::string& document,
                                                  std::int64_t max_tokens) const {
  if (const auto ok = check_length(query.size() + document.size(), max_tokens); !ok)
    return ok.error();
  if (!template_ || !defaults_.template_was_given)
    return tokenizer_->encode_pair(query, document, true);
  ChatCompletionRequest request;
  for (const auto& [role, text] : {std::pair{"query", &query}, std::pair{"document", &document}}) {
    auto& message = request.messages.emplace_back();
    message.role = role;
    message.content = *text;
  }
  auto rendered = render(request);
  if (!rendered) return rendered.error();
  auto ids = encode(*rendered, false, max_tokens);
  if (!ids) return ids.error();
  return Tokenizer::Pair{std::move(*ids), 0};
}

std::size_t text_size(const ChatCompletionRequest& request) {
  // A template of the request's own may take as long as it is allowed to.
  if (request.chat_template) return std::numeric_limits<std::size_t>::max();
  std::size_t size =
      request.tools.size() + request.documents.size() + request.chat_template_kwargs.size();
  for (const auto& message : request.messages) {
    size += message.content ? message.content->size() : 0;
    size += message.reasoning ? message.reasoning->size() : 0;
    for (const auto& call : message.tool_calls) {
      size += call.function.name.size() + call.function.arguments.size();
    }
  }
  return size;
}

}  // namespace quire
