#include <boost/asio/awaitable.hpp>

#include "openapi/dto_json.h"
#include "openapi/json_writer.h"
#include "server/generation/completion_sinks.h"

namespace quire {

CompletionStream::CompletionStream(Exchange& exchange, const std::vector<Choice>& choices,
                                   CompletionReplyOptions options, const TextDefaults& defaults)
    : StreamSink(exchange, choices, options, "text_completion", defaults),
      options_(std::move(options)),
      progress_(choices.size()) {}

// Counted by tokens: their text may be held back.
openapi::CompletionLogprobs CompletionStream::next_logprobs(const Choice& choice,
                                                            const ChoiceDelta& delta, bool first) {
  std::int64_t& offset = progress_[choice.index].offset;
  openapi::CompletionLogprobs logprobs{delta.logprobs, offset};
  if (first && !options_.echo.empty()) {
    auto& tokens = logprobs.tokens;
    tokens.insert(tokens.begin(), delta.prompt_logprobs.begin(), delta.prompt_logprobs.end());
    tokens.insert(tokens.begin(), options_.first_tokens[choice.prompt]);
    logprobs.starts_prompt = true;
  }
  offset = openapi::end_offset(logprobs);
  return logprobs;
}

void CompletionStream::write(const Choice& choice, const ChoiceDelta& delta, std::string_view text,
                             bool first) {
  std::string& out = begin_chunk();
  openapi::JsonWriter json(out);
  json.begin_object().key("index").integer(choice.index).key("text").string(text).key("logprobs");
  const bool echoes = first && !options_.echo.empty();
  if (options_.logprobs && (echoes || !delta.logprobs.empty())) {
    std::string logprobs;
    openapi::append_completion_logprobs(logprobs, next_logprobs(choice, delta, first));
    json.raw(logprobs);
  } else {
    json.null();
  }
  json.key("finish_reason");
  if (delta.finish_reason.empty()) {
    json.null();
  } else {
    json.string(delta.finish_reason);
  }
  json.key("stop_reason").raw(delta.stop_reason);
  if (options_.return_token_ids) {
    if (first) json.key("prompt_token_ids").ids(options_.prompt_ids[choice.prompt]);
    json.key("token_ids").ids(delta.token_ids);
  }
  json.end_object();
  end_chunk(choice, out, delta);
}

awaitable<bool> CompletionStream::on_delta(Choice& choice, ChoiceDelta delta) {
  if (refused()) co_return false;
  Progress& progress = progress_[choice.index];
  const bool first = !std::exchange(progress.has_begun, true);
  std::string text = std::move(delta.text.content);
  if (first && !options_.echo.empty()) {
    text.insert(0, options_.echo[choice.prompt]);
  }
  const bool says_something = !text.empty() || !delta.finish_reason.empty() ||
                              !delta.logprobs.empty() || options_.return_token_ids;
  if (!says_something) co_return true;
  write(choice, delta, text, first);
  co_return co_await sse().flush();
}

}  // namespace quire
