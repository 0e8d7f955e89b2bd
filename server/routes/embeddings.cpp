// POST /v1/embeddings

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>

#include "server/http/error_reply.h"
#include "server/pooling/vectors.h"
#include "server/routes/routes.h"

namespace quire {

namespace {

// How many numbers of a vector are wanted.
Result<std::size_t> wanted_size(const openapi::EmbeddingRequest& request, const PoolingInfo& info) {
  const auto whole = static_cast<std::size_t>(info.size);
  const auto refuse = [](std::string why) {
    return Error{ErrorCode::invalid_argument, std::move(why), "dimensions"};
  };
  if (!request.dimensions || std::cmp_equal(*request.dimensions, whole)) return whole;
  if (!info.is_matryoshka) {
    return refuse(fmt::format(
        "dimensions: this model's vectors have {} numbers and cannot be cut "
        "(Matryoshka representation; PoolingOptions::is_matryoshka '{{\"is_matryoshka\": "
        "true}}' where the model was trained for it)",
        info.size));
  }
  const std::int64_t asked = *request.dimensions;
  if (!info.dimensions.empty()) {
    if (std::ranges::find(info.dimensions, asked) != info.dimensions.end())
      return static_cast<std::size_t>(asked);
    return refuse(fmt::format("dimensions is {}; what works: {}", asked,
                              fmt::join(info.dimensions, ", ")));
  }
  if (asked <= info.size) return static_cast<std::size_t>(asked);
  return refuse(fmt::format("dimensions is {}; what works: 1 to {}", asked, info.size));
}

Result<std::vector<PooledPrompt>> tokens_of(const openapi::EmbeddingRequest& request,
                                            const AppState& app) {
  const std::int64_t limit =
      request.truncate_prompt_tokens ? kNoLimit : app.engines.ready().max_model_len;
  std::vector<PooledPrompt> prompts;
  for (const openapi::Prompt& input : request.inputs) {
    PooledPrompt& prompt = prompts.emplace_back();
    prompt.ids = input.ids;
    if (input.is_text) {
      auto ids = app.text.encode(input.text, request.add_special_tokens, limit);
      if (!ids) return ids.error();
      prompt.ids = std::move(*ids);
    }
    if (prompt.ids.empty())
      return Error{ErrorCode::invalid_argument, "input: a text of no tokens has no embedding",
                   "input"};
    if (const auto ok = truncate(request, app, prompt.ids); !ok) return ok.error();
  }
  return prompts;
}

awaitable<void> reply_vectors(const openapi::EmbeddingRequest& request, std::size_t size,
                              std::vector<PooledPrompt> prompts, Exchange& exchange,
                              AppState& app) {
  auto vectors = co_await run_prompts(std::move(prompts), request, exchange, app);
  if (!vectors) co_return co_await exchange.reply(error_reply(vectors.error()));
  for (std::vector<float>& vector : vectors->values) {
    vector.resize(size);
    if (uses_activation(request, app)) normalize(vector);
  }
  const auto head = pooling_reply(request, "embd-", *vectors, exchange, app);
  co_await exchange.reply(
      json_reply(openapi::embeddings_json(head, vectors->values, request.is_base64)));
}

}  // namespace

awaitable<void> post_embeddings(Exchange& exchange, AppState& app) {
  const std::size_t body_size = exchange.request().body.size();
  Result<openapi::EmbeddingRequest> request = Error{};
  co_await with_body(exchange, app,
                     [&](std::string_view body) { request = openapi::parse_embeddings(body); });
  if (!request) co_return co_await exchange.reply(malformed_reply(request.error()));
  if (const auto ok = check_pooling(*request, PoolingTask::embed, exchange, app); !ok)
    co_return co_await exchange.reply(error_reply(ok.error()));
  const auto size = wanted_size(*request, app.engines.ready().engines.front().pooling);
  if (!size) co_return co_await exchange.reply(error_reply(size.error()));
  Result<std::vector<PooledPrompt>> prompts = Error{};
  const auto work = [&] { prompts = tokens_of(*request, app); };
  if (body_size <= kLongText) {
    work();
  } else {
    co_await run_on(app.worker, work);
  }
  if (!prompts) co_return co_await exchange.reply(error_reply(prompts.error()));
  co_await first_of(reply_vectors(*request, *size, std::move(*prompts), exchange, app),
                    exchange.peer_closed());
}

}  // namespace quire
