#include "server/text_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "server/chat_prompt_text.h"

namespace quire {

namespace {

using openapi::ChatCompletionRequest;

Error bad_request(std::string detail, std::string field = {}) {
  return {ErrorCode::invalid_argument, std::move(detail), std::move(field)};
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
  return chat_prompt_text(request, template_ ? &*template_ : nullptr, defaults_);
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
  // Templates of pairs take texts, as in vLLM.
  auto rendered = chat_prompt_text(request, &*template_, defaults_, ContentFormat::text);
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
