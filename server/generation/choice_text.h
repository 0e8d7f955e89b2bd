#pragma once
// One choice's way from tokens back to words: detokenizer, stop strings, then reasoning and tool
// calls. Says when and why the choice ends.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/wire/messages.h"
#include "openapi/dto.h"
#include "server/generation/stop_strings.h"
#include "server/generation/token_words.h"
#include "text/output/output_parser.h"
#include "text/tokenizer/detokenizer.h"

namespace quire {

struct ChoiceTextOptions {
  bool skip_special_tokens = true;
  std::vector<std::string> stop{};
  bool include_stop = false;
  int min_tokens = 0;
  std::vector<TokenId> stop_token_ids{};  // the request's own
  std::optional<OutputFormat> format{};   // unset: all is content
  std::vector<TokenId> shown_specials{};  // to the parser, though special; ascending
  bool one_tool_call = false;             // parallel_tool_calls is false
  bool wants_logprobs = false;
  bool logprobs_of_content = false;  // only of tokens whose text is content
  bool wants_token_ids = false;
  bool tokens_as_ids = false;  // log-probabilities name a token token_id:7
  bool prompt_only = false;    // what is generated is not wanted: echo with max_tokens 0
};

// What one output of the engine adds to the choice.
struct ChoiceDelta {
  OutputDelta text{};
  std::vector<TokenId> token_ids{};  // where they are wanted
  std::vector<openapi::TokenLogprob> logprobs{};
  std::vector<openapi::TokenLogprob> prompt_logprobs{};  // of all but the prompt's first token
  std::string finish_reason{};                           // empty: it goes on
  std::string stop_reason = "null";                      // JSON text
  std::string transfer_params{};  // JSON text for whoever continues it; empty: none
};

// As the token that follows those of `words`.
openapi::TopLogprob logprob_entry(const Tokenizer& tokenizer, TokenId id, float logprob, bool as_id,
                                  const TokenWords& words = {});

class ChoiceText {
 public:
  // The options are shared by all choices of a prompt, which may be many. The text continues that
  // of the prompt, of which the last tokens are enough: kPromptEnd.
  static constexpr std::size_t kPromptEnd = 6;
  ChoiceText(const Tokenizer& tokenizer, std::shared_ptr<const ChoiceTextOptions> options,
             std::span<const TokenId> prompt_end = {});

  // As if nothing had been pushed.
  void start_over();

  // Not of an output that failed. After a finish_reason nothing may be pushed.
  ChoiceDelta push(const RequestOutput& output);
  int num_tokens() const { return num_tokens_; }  // that count: up to a stop string
  // Of them, those that came inside of reasoning; unset where none is looked for.
  std::optional<int> num_reasoning_tokens() const;

 private:
  void push_tokens(const RequestOutput& output, ChoiceDelta& delta);
  void push_text(std::string_view text, ChoiceDelta& delta);
  bool is_shown(TokenId id) const;
  std::vector<TokenId> shown_part(std::span<const TokenId> ids) const;
  void finish(const RequestOutput& output, ChoiceDelta& delta);
  openapi::TokenLogprob logprob_of(const PositionLogprobs& position, TokenWords& words) const;
  void push_token(TokenId id, ChoiceDelta& delta);
  void tell_logprobs(std::size_t content_before, bool is_thought_or_call, ChoiceDelta& delta);

  const Tokenizer* tokenizer_;
  std::shared_ptr<const ChoiceTextOptions> options_;
  std::vector<TokenId> prompt_end_;  // what is shown of it
  Detokenizer detokenizer_;
  StopStrings stops_;
  std::optional<OutputParser> parser_;
  TokenWords words_, prompt_words_;
  std::vector<openapi::TokenLogprob> held_logprobs_;  // of tokens whose text is held back
  bool has_content_ = false;
  int num_tokens_ = 0;
  int num_reasoning_tokens_ = 0;
};

}  // namespace quire
