#include <algorithm>
#include <boost/asio/awaitable.hpp>

#include "openapi/dto_json.h"
#include "openapi/json_writer.h"
#include "server/generation/completion_sinks.h"

namespace quire {

namespace {

std::int64_t characters(std::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

}  // namespace

CompletionStream::CompletionStream(Exchange& exchange, const std::vector<Choice>& choices,
                                   CompletionReplyOptions options, const TextDefaults& defaults)
    : StreamSink(exchange, choices, options, "text_completion", defaults),
      options_(std::move(options)),
      progress_(choices.size()) {}

openapi::CompletionLogprobs CompletionStream::logprobs_of(const Choice& choice,
                                                          const ChoiceDelta& delta,
                                                          bool first) const {
  openapi::CompletionLogprobs logprobs{delta.logprobs, progress_[choice.index].characters};
  if (!first || options_.echo.empty()) return logprobs;
  auto& tokens = logprobs.tokens;
  tokens.insert(tokens.begin(), delta.prompt_logprobs.begin(), delta.prompt_logprobs.end());
  tokens.insert(tokens.begin(), options_.first_tokens[choice.prompt]);
  logprobs.first_offset = 0;
  logprobs.starts_prompt = true;
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
    openapi::append_completion_logprobs(logprobs, logprobs_of(choice, delta, first));
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
  progress.characters += characters(text);
  co_return co_await sse().flush();
}

}  // namespace quire
