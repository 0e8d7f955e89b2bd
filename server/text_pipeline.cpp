#include "server/text_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "server/template_messages.h"

namespace quire {

namespace {

using jinja::Dict;
using jinja::Value;
using openapi::ChatCompletionRequest;

bool shows_tools(const ChatCompletionRequest& request, const TextDefaults& defaults) {
  if (request.tools.empty()) return false;
  return !(defaults.exclude_tools_when_none && request.tool_choice == openapi::ToolChoice::none);
}

// Some templates read the word, others have a switch: off for none, and who asks for some effort
// asks for thinking (vLLM's rule).
void set_effort(const std::string& effort, Dict& kwargs) {
  kwargs.set("reasoning_effort", Value(effort));
  for (const char* name : {"enable_thinking", "thinking"}) kwargs.set(name, Value(effort != "none"));
}

ChatTemplateInput template_input(const ChatCompletionRequest& request, std::string_view source,
                                 const TextDefaults& defaults) {
  ChatTemplateInput input;
  input.messages = template_messages(request, source);
  if (shows_tools(request, defaults)) input.tools = jinja::parse_json(request.tools);
  if (!request.documents.empty()) input.documents = jinja::parse_json(request.documents);
  input.add_generation_prompt = request.add_generation_prompt;
  input.continue_final_message = request.continue_final_message;
  input.kwargs = defaults.template_kwargs;
  if (request.reasoning_effort) set_effort(*request.reasoning_effort, input.kwargs);
  if (!request.chat_template_kwargs.empty()) {
    const Value kwargs = jinja::parse_json(request.chat_template_kwargs);
    for (const Dict::Entry& entry : kwargs.dict()) input.kwargs.set(entry.key, entry.value);
  }
  return input;
}

Error bad_request(std::string detail, std::string field = {}) {
  return {ErrorCode::invalid_argument, std::move(detail), std::move(field)};
}

// What a family was not trained to do would be written into its prompt, and not be done.
Result<void> check_effort(const ChatCompletionRequest& request, const TextDefaults& defaults) {
  const std::string effort = request.reasoning_effort.value_or("medium");
  const bool has_channels = defaults.reasoning && defaults.reasoning->channels;
  if (!has_channels || effort == "low" || effort == "medium" || effort == "high") return {};
  return bad_request(
      fmt::format("reasoning_effort: this model knows low, medium and high, not {}", effort),
      "reasoning_effort");
}

// A prompt that goes on with the assistant's words may stop in the middle of a thought.
bool opens_reasoning(std::string_view prompt, const ReasoningFormat& format, bool continues) {
  const auto end = prompt.find_last_not_of(" \t\r\n");
  const auto text = prompt.substr(0, end == prompt.npos ? 0 : end + 1);
  for (const std::string& open : format.open) {
    if (text.ends_with(open)) return true;
    if (!continues) continue;
    const auto opened = text.rfind(open);
    const auto closed = text.rfind(format.close.front());
    if (opened != text.npos && (closed == text.npos || closed < opened)) return true;
  }
  return false;
}

void add_special(std::vector<TokenId>& ids, const Tokenizer& tokenizer,
                 const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    // A marker may be several tokens, and some of them special.
    for (const TokenId id : tokenizer.encode(text, false)) {
      if (tokenizer.is_special(id)) ids.push_back(id);
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
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
  opens_thought_when_asked_ = find_whether_it_opens_thoughts();
}

bool TextPipeline::find_whether_it_opens_thoughts() const {
  if (!template_ || !defaults_.reasoning) return false;
  ChatCompletionRequest asked;
  asked.messages.push_back({.role = "user", .content = "?"});
  asked.chat_template_kwargs = R"({"enable_thinking":true,"thinking":true})";
  const auto prompt = render(asked);
  return prompt && opens_reasoning(*prompt, *defaults_.reasoning, false);
}

Result<std::string> TextPipeline::render(const ChatCompletionRequest& request) const {
  if (const auto ok = check_effort(request, defaults_); !ok) return ok.error();
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
    const std::string& source =
        request.chat_template ? *request.chat_template : template_->source();
    std::optional<ChatTemplate> of_request;
    if (request.chat_template) of_request = ChatTemplate::parse(source, defaults_.special_tokens);
    const ChatTemplate& chat_template = of_request ? *of_request : *template_;
    const auto render_one = [&](const ChatCompletionRequest& one) {
      return chat_template.render(template_input(one, source, defaults_));
    };
    RenderResult rendered = render_one(request);
    if (!rendered) return rendered.error->to_error();
    const auto ok = check_roles(request, source, render_one);
    if (!ok) return ok.error();
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
