#include "server/chat_prompt_text.h"

#include <fmt/format.h>

#include <optional>
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

ChatTemplateInput template_input(const ChatCompletionRequest& request,
                                 const ChatTemplate& chat_template, const TextDefaults& defaults,
                                 std::optional<ContentFormat> format) {
  ChatTemplateInput input;
  if (shows_tools(request, defaults)) input.tools = jinja::parse_json(request.tools);
  if (!format) format = defaults.content_format;
  if (!format) format = chat_template.content_format(!input.tools.is_none());
  input.messages = template_messages(request, chat_template.source(), *format);
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

// A message, and each part of one, is an object to the template: a hundred times the bytes that it
// takes in a body.
Result<void> check_parts(const ChatCompletionRequest& request) {
  constexpr std::size_t kMost = 1 << 16;
  std::size_t count = 0;
  for (const openapi::ChatMessage& message : request.messages) count += 1 + message.part_breaks.size();
  if (count <= kMost) return {};
  return bad_request(
      fmt::format("messages: at most {} messages and parts of them in all, not {}", kMost, count),
      "messages");
}

}  // namespace

Result<std::string> chat_prompt_text(const ChatCompletionRequest& request,
                                     const ChatTemplate* of_model, const TextDefaults& defaults,
                                     std::optional<ContentFormat> format) {
  if (const auto ok = check_parts(request); !ok) return ok.error();
  if (const auto ok = check_effort(request, defaults); !ok) return ok.error();
  if (request.chat_template && !defaults.trust_request_chat_template) {
    return bad_request(
        "chat_template in a request is refused; start the server with "
        "TextDefaults::trust_request_chat_template to allow it",
        "chat_template");
  }
  if (!request.chat_template && of_model == nullptr) {
    return bad_request(
        "The model has no chat template; give one with TextDefaults::template_was_given");
  }
  try {
    const std::string& source =
        request.chat_template ? *request.chat_template : of_model->source();
    std::optional<ChatTemplate> of_request;
    if (request.chat_template) of_request = ChatTemplate::parse(source, defaults.special_tokens);
    const ChatTemplate& chat_template = of_request ? *of_request : *of_model;
    const auto render_one = [&](const ChatCompletionRequest& one) {
      return chat_template.render(template_input(one, chat_template, defaults, format));
    };
    RenderResult rendered = render_one(request);
    const auto is_whole = [&](const ChatCompletionRequest& one, const RenderResult& result) {
      return result && shows_instructions(one, render_one);
    };
    std::optional<ChatCompletionRequest> joined;
    if (may_join_instructions(request, source) && !is_whole(request, rendered)) {
      joined = with_joined_instructions(request);
      RenderResult again = render_one(*joined);
      const bool helps = is_whole(*joined, again) || (again && !rendered);
      if (helps) rendered = std::move(again);
      if (!helps) joined.reset();
    }
    if (!rendered) return rendered.error->to_error();
    const auto ok = check_roles(joined ? *joined : request, source, render_one);
    if (!ok) return ok.error();
    return std::move(rendered.text);
  } catch (const Failure& failure) {
    return failure.error();
  } catch (const TemplateError& error) {
    return error.to_error();
  }
}

}  // namespace quire
