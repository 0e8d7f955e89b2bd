#pragma once
// Between a request's words and the engine's tokens: chat template and tokenizer on the way in;
// choice_text.h is the way out. Immutable; any thread.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "openapi/dto.h"
#include "text/output/dialect.h"
#include "text/template/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

// What a request leaves unsaid; of generation_config.json and the flags.
struct TextDefaults {
  std::optional<float> temperature{};
  std::optional<float> top_p{};
  std::optional<int> top_k{};
  std::optional<float> min_p{};
  std::optional<float> repetition_penalty{};
  std::optional<int> max_new_tokens{};
  std::optional<int> most_new_tokens{};  // that any request gets, whatever it asks for
  std::vector<TokenId> eos_token_ids{};

  jinja::Dict template_kwargs{};  // --default-chat-template-kwargs
  jinja::Dict special_tokens{};   // bos_token and the like, for templates that requests bring
  const ReasoningFormat* reasoning = nullptr;  // null: none is split from the answer
  const Dialect* dialect = nullptr;  // of tool calls, where the request has tools; null: none known
  std::string tokenizer_info = "{}";  // JSON text: what the tokenizer's configuration says
  bool trust_request_chat_template = false;
  bool exclude_tools_when_none = false;  // tool_choice none hides the tools from the model
  bool prompt_tokens_details = true;     // usage says how much of the prompt was cached
  bool force_include_usage = false;
  bool template_was_given = false;  // --chat-template: it also words pairs that are rated
  std::optional<ContentFormat> content_format{};  // unset: as the template takes it
};

struct ChatPrompt {
  std::vector<TokenId> ids{};
  bool starts_thinking = false;  // the prompt has opened the reasoning
};

class TextPipeline {
 public:
  TextPipeline(std::unique_ptr<const Tokenizer> tokenizer,
               std::optional<ChatTemplate> chat_template, TextDefaults defaults);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const TextDefaults& defaults() const { return defaults_; }
  // Special tokens that are markup of reasoning or, if asked for, of calls: a parser needs them.
  const std::vector<TokenId>& markup(bool with_calls) const {
    return with_calls ? all_markup_ : reasoning_markup_;
  }

  // With thinking on, the template's prompts open the thought themselves.
  bool opens_thought_when_asked() const { return opens_thought_when_asked_; }

  // A text that cannot fit max_tokens is refused before it is cut into tokens.
  Result<ChatPrompt> chat_prompt(const openapi::ChatCompletionRequest& request,
                                 std::int64_t max_tokens) const;
  // A text of this many bytes can have few enough tokens.
  Result<void> check_length(std::size_t bytes, std::int64_t max_tokens) const;
  Result<std::vector<TokenId>> encode(std::string_view text, bool add_special_tokens,
                                      std::int64_t max_tokens) const;
  // A question and what is rated by it: by the template, where one was given for that
  // (--chat-template), or as the tokenizer joins two texts.
  Result<Tokenizer::Pair> encode_pair(const std::string& query, const std::string& document,
                                      std::int64_t max_tokens) const;

 private:
  Result<std::string> render(const openapi::ChatCompletionRequest& request) const;
  bool find_whether_it_opens_thoughts() const;

  std::unique_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  TextDefaults defaults_;
  bool opens_thought_when_asked_ = false;
  std::size_t longest_token_ = 1;                       // bytes
  std::vector<TokenId> reasoning_markup_, all_markup_;  // ascending
};

// About how long the request takes to become tokens, in bytes of text.
std::size_t text_size(const openapi::ChatCompletionRequest& request);

}  // namespace quire
