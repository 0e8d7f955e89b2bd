#include "server/generation/choice_text.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "openapi/json_writer.h"

namespace quire {

namespace {

void append(OutputDelta& into, OutputDelta&& more) {
  into.reasoning += more.reasoning;
  into.content += more.content;
  for (ToolCallDelta& call : more.tool_calls) {
    if (!into.tool_calls.empty() && into.tool_calls.back().index == call.index) {
      into.tool_calls.back().arguments += call.arguments;
    } else {
      into.tool_calls.push_back(std::move(call));
    }
  }
}

}  // namespace

namespace {

// Of an answer that is cut within a character there is no part of it: whoever goes on from there
// would send it back.
std::string whole_characters(std::string text) {
  while (text.ends_with(kReplacementCharacter))
    text.resize(text.size() - kReplacementCharacter.size());
  return text;
}

}  // namespace

openapi::TopLogprob logprob_entry(const Tokenizer& tokenizer, TokenId id, float logprob, bool as_id,
                                  const TokenWords& words) {
  std::string bytes = tokenizer.token_bytes(id);
  std::string word = as_id ? "token_id:" + std::to_string(id) : words.next(bytes);
  return {std::move(word), std::move(bytes), logprob, id};
}

ChoiceText::ChoiceText(const Tokenizer& tokenizer, std::shared_ptr<const ChoiceTextOptions> options,
                       std::span<const TokenId> prompt_end)
    : tokenizer_(&tokenizer),
      options_(std::move(options)),
      prompt_end_(shown_part(prompt_end)),
      detokenizer_(tokenizer, false, prompt_end_),
      stops_(options_->stop, options_->include_stop) {
  if (options_->format) parser_.emplace(*options_->format);
}

void ChoiceText::start_over() { *this = ChoiceText(*tokenizer_, options_, prompt_end_); }

openapi::TokenLogprob ChoiceText::logprob_of(const PositionLogprobs& position,
                                             TokenWords& words) const {
  const auto entry = [&](const TokenLogprob& one) {
    return logprob_entry(*tokenizer_, one.token, one.logprob, options_->tokens_as_ids, words);
  };
  openapi::TokenLogprob logprob{entry(position.chosen), {}, position.rank};
  for (const TokenLogprob& one : position.top) logprob.top.push_back(entry(one));
  words.advance(logprob.bytes);
  return logprob;
}

std::optional<int> ChoiceText::num_reasoning_tokens() const {
  if (!options_->format || !options_->format->reasoning) return {};
  return num_reasoning_tokens_;
}

// Special tokens are left out here, but for those that the parser reads.
bool ChoiceText::is_shown(TokenId id) const {
  const auto& shown = options_->shown_specials;
  return !options_->skip_special_tokens || !tokenizer_->is_special(id) ||
         std::binary_search(shown.begin(), shown.end(), id);
}

std::vector<TokenId> ChoiceText::shown_part(std::span<const TokenId> ids) const {
  std::vector<TokenId> shown;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(shown),
               [this](TokenId id) { return is_shown(id); });
  return shown;
}

void ChoiceText::push_text(std::string_view text, ChoiceDelta& delta) {
  if (text.empty()) return;
  if (parser_) {
    append(delta.text, parser_->push(text));
  } else {
    delta.text.content += text;
  }
}

void ChoiceText::push_token(TokenId id, ChoiceDelta& delta) {
  const bool was_in_reasoning = parser_ && parser_->in_reasoning();
  push_text(stops_.push(is_shown(id) ? detokenizer_.push(id) : std::string(),
                        num_tokens_ > options_->min_tokens),
            delta);
  // As a budget counts: without the marks around the thought.
  if (was_in_reasoning && parser_->in_reasoning()) ++num_reasoning_tokens_;
}

// A thought's or a call's tokens, marks too, are nobody's; those of trimmed blanks neither.
void ChoiceText::tell_logprobs(std::size_t content_before, bool is_thought_or_call,
                               ChoiceDelta& delta) {
  if (is_thought_or_call) return held_logprobs_.clear();
  const auto content = std::string_view(delta.text.content).substr(content_before);
  if (content.empty()) return;
  auto from = held_logprobs_.begin();
  const auto is_trimmed = [&](const openapi::TokenLogprob& token) {
    return token.bytes.find_first_not_of(" \t\r\n") == std::string::npos &&
           !content.starts_with(token.bytes);
  };
  if (!std::exchange(has_content_, true)) {
    while (from != held_logprobs_.end() && is_trimmed(*from)) ++from;
  }
  std::move(from, held_logprobs_.end(), std::back_inserter(delta.logprobs));
  held_logprobs_.clear();
}

// Token by token: a stop string ends the choice at the token that completes it, however many came.
void ChoiceText::push_tokens(const RequestOutput& output, ChoiceDelta& delta) {
  for (std::size_t i = 0; i < output.token_ids.size() && !stops_.found(); ++i) {
    const TokenId id = output.token_ids[i];
    ++num_tokens_;
    if (options_->wants_token_ids) delta.token_ids.push_back(id);
    if (options_->wants_logprobs && i < output.logprobs.size()) {
      auto& into = options_->logprobs_of_content ? held_logprobs_ : delta.logprobs;
      into.push_back(logprob_of(output.logprobs[i], words_));
    }
    const bool is_stop_token = output.stop_token && i + 1 == output.token_ids.size();
    if (is_stop_token && !options_->include_stop) {
      if (options_->logprobs_of_content && !held_logprobs_.empty()) held_logprobs_.pop_back();
      break;
    }
    const bool was_in_reasoning = parser_ && parser_->in_reasoning();
    const std::size_t content = delta.text.content.size(), thought = delta.text.reasoning.size();
    const int calls = parser_ ? parser_->num_tool_calls() : 0;
    push_token(id, delta);
    if (options_->logprobs_of_content) {
      const bool in_reasoning = parser_ && parser_->in_reasoning();
      const bool is_call = parser_ && parser_->num_tool_calls() != calls;
      tell_logprobs(
          content,
          was_in_reasoning || in_reasoning || is_call || delta.text.reasoning.size() != thought,
          delta);
    }
  }
  if (output.finish_reason && !stops_.found()) {
    const std::size_t content = delta.text.content.size();
    push_text(stops_.push(whole_characters(detokenizer_.finish()),
                          num_tokens_ > options_->min_tokens),
              delta);
    push_text(stops_.finish(), delta);
    if (options_->logprobs_of_content) tell_logprobs(content, false, delta);
  }
}

void ChoiceText::finish(const RequestOutput& output, ChoiceDelta& delta) {
  if (stops_.found()) {
    delta.finish_reason = "stop";
    delta.stop_reason.clear();
    openapi::append_json_string(delta.stop_reason, *stops_.found());
  } else {
    delta.finish_reason = name_of(*output.finish_reason);
    const auto& own = options_->stop_token_ids;
    if (output.stop_token && std::find(own.begin(), own.end(), *output.stop_token) != own.end()) {
      delta.stop_reason = std::to_string(*output.stop_token);
    }
  }
  if (!parser_) return;
  append(delta.text, parser_->finish());
  if (delta.finish_reason == "stop" && parser_->num_tool_calls() > 0) {
    delta.finish_reason = "tool_calls";
  }
}

ChoiceDelta ChoiceText::push(const RequestOutput& output) {
  ChoiceDelta delta;
  for (const auto& position : output.prompt_logprobs) {
    delta.prompt_logprobs.push_back(logprob_of(position, prompt_words_));
  }
  if (options_->prompt_only) {
    delta.finish_reason = name_of(FinishReason::length);
    return delta;
  }
  push_tokens(output, delta);
  if (output.finish_reason || stops_.found()) finish(output, delta);
  delta.transfer_params = output.transfer_params;
  if (options_->one_tool_call) {
    std::erase_if(delta.text.tool_calls, [](const ToolCallDelta& call) { return call.index > 0; });
  }
  return delta;
}

}  // namespace quire
