#include "server/generation/stream_sink.h"

#include <boost/asio/awaitable.hpp>
#include <ctime>
#include <utility>

#include "server/http/error_reply.h"
#include "server/routes/routes.h"

namespace quire {

std::string public_id(const openapi::GenerationRequest& request, const Exchange& exchange) {
  const bool has_header = !exchange.request().request_id.empty();
  return has_header || !request.request_id ? exchange.id() : *request.request_id;
}

ReplyOptions reply_options(const openapi::GenerationRequest& request, std::string_view id_prefix,
                           bool logprobs, const Exchange& exchange, const AppState& app) {
  const auto stream = request.stream_options.value_or(openapi::StreamOptions{});
  ReplyOptions options;
  options.id = std::string(id_prefix) + public_id(request, exchange);
  options.created = std::time(nullptr);
  options.model = reply_model(request.model, app);
  options.fingerprint = system_fingerprint(app);
  options.include_usage = stream.include_usage || app.text.defaults().force_include_usage;
  options.continuous_usage = stream.continuous_usage_stats && options.include_usage;
  options.return_token_ids = request.return_token_ids;
  options.logprobs = logprobs;
  options.prompt_logprobs = request.prompt_logprobs;
  return options;
}

StreamSink::StreamSink(Exchange& exchange, const std::vector<Choice>& choices,
                       const ReplyOptions& options, std::string_view object,
                       const TextDefaults& defaults)
    : EventSink(exchange),
      choices_(choices),
      include_usage_(options.include_usage),
      continuous_usage_(options.continuous_usage),
      defaults_(defaults),
      chunks_(options.id, object, options.created, options.model, options.fingerprint) {}

SseWriter& EventSink::sse() {
  if (!sse_) sse_ = &exchange_.begin_sse();
  return *sse_;
}

std::string& StreamSink::begin_chunk() {
  std::string& out = sse().begin_event();
  chunks_.begin(out);
  return out;
}

void StreamSink::end_chunk(const Choice& choice, std::string& out, int num_tokens,
                           std::string_view members) {
  openapi::Usage usage;
  usage.prompt_tokens = choice.prompt_tokens;
  usage.completion_tokens = num_tokens;
  chunks_.end(out, continuous_usage_ ? &usage : nullptr, members);
  sse().end_event();
}

void StreamSink::end_chunk(const Choice& choice, std::string& out, const ChoiceDelta& delta) {
  const std::string& params = delta.transfer_params;
  end_chunk(choice, out, choice.text.num_tokens(),
            params.empty() ? "" : ",\"kv_transfer_params\":" + params);
}

awaitable<bool> EventSink::on_error(Choice&, const Error& error) {
  if (refused_) co_return false;
  if (!sse_) {
    refused_ = true;
    co_await exchange_.reply(error_reply(error));
    co_return false;
  }
  // Once, though it may be the end of several choices.
  if (std::exchange(told_, error.detail) == error.detail) co_return true;
  write_error(exchange_.spelled(error));
  co_return co_await sse().flush();
}

awaitable<void> EventSink::finish() {
  if (sse_) co_await write_end();  // or else the reply has been sent
}

void StreamSink::write_error(const Error& error) { sse().event(error_body(error)); }

awaitable<void> StreamSink::write_end() {
  if (include_usage_) {
    chunks_.usage_chunk(sse().begin_event(), usage_of(choices_, defaults_));
    sse().end_event();
  }
  co_await sse().done();
}

awaitable<void> stream_choices(std::vector<Choice>& choices, EventSink& sink, Exchange& exchange) {
  // Named first: g++ 12 loses the reference where this stands in the if.
  const bool is_there = co_await run_choices(choices, sink, exchange);
  if (is_there) co_await sink.finish();
}

}  // namespace quire
