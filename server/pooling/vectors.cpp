#include "server/pooling/vectors.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <cmath>
#include <ctime>
#include <deque>

#include "server/generation/choices.h"
#include "server/http/share_refusal.h"
#include "server/metrics/choice_tracker.h"
#include "server/metrics/rejection.h"
#include "server/routes/routes.h"

namespace quire {

namespace {

// One prompt that the engine has.
struct Running {
  std::size_t index = 0;
  Generation generation;
  ChoiceTracker tracker;
  FairShare::Held place;
};

Result<Running> submit(PooledPrompt prompt, std::size_t index,
                       const openapi::PoolingRequest& request, const Exchange& exchange,
                       AppState& app) {
  const auto num_tokens = static_cast<int>(prompt.ids.size());
  AddRequest add;
  add.prompt = std::move(prompt.ids);
  add.pooling = PoolingParams{.second_segment = prompt.second};
  add.sampling.max_tokens = 1;
  add.priority = static_cast<int>(request.priority);
  add.client = exchange.client();
  add.arrival = exchange.arrival();
  auto generation = app.engines.submit(std::move(add), exchange.engine());
  if (!generation) {
    Error error = generation.error();
    if (error.field == "prompt") error.field = "input";  // what it is called here
    return error;
  }
  app.timelines.begin(generation->id(), exchange.id());
  ChoiceTracker tracker(app.metrics, generation->engine(), exchange.arrival(), num_tokens, 0, 1);
  if (exchange.key() != nullptr) exchange.key()->spend_tokens(num_tokens);
  return Running{index, std::move(*generation), std::move(tracker),
                 FairShare::Held(app.shares, exchange.client())};
}

// Until the prompt has become a vector.
awaitable<Result<std::vector<float>>> finish(Running running) {
  std::vector<float> pooled;
  while (auto output = co_await running.generation.next()) {
    running.tracker.on_output(*output, {}, 0);
    if (!output->pooled.empty()) pooled = std::move(output->pooled);
    if (!output->finish_reason) continue;
    if (*output->finish_reason == FinishReason::stop && !pooled.empty()) {
      running.tracker.on_end(RequestEnd::stop);
      co_return pooled;
    }
    const bool aborted = *output->finish_reason == FinishReason::abort;
    running.tracker.on_end(aborted ? RequestEnd::abort : RequestEnd::error);
    if (aborted) co_return Error{ErrorCode::unavailable, "The server is shutting down", {}};
    if (output->error) co_return *output->error;
    break;
  }
  co_return Error{ErrorCode::internal, "The engine ended this request without a vector", {}};
}

// As many as may run at a time: more would only wait in the queue.
std::size_t window(const AppState& app) {
  return static_cast<std::size_t>(app.engine_config.scheduler.max_num_seqs) *
         static_cast<std::size_t>(app.engines.num_engines());
}

bool has_share(const Exchange& exchange, AppState& app) {
  return app.shares.allows(exchange.client(), 1, app.engines.num_free(), FairShare::Clock::now());
}

void count_refusal(const Error& error, const Exchange& exchange, AppState& app) {
  if (error.code != ErrorCode::overloaded) return;
  app.metrics.request_rejected(why_rejected(app.engines, exchange.engine()));
  app.shares.turned_away(exchange.client(), FairShare::Clock::now());
}

}  // namespace

Result<void> check_pooling(const openapi::PoolingRequest& request, PoolingTask task,
                           const Exchange& exchange, const AppState& app) {
  openapi::GenerationRequest common;
  common.model = request.model;
  common.priority = request.priority;
  common.unknown_members = request.unknown_members;
  if (const auto ok = check_request(common, app); !ok) return ok;
  if (request.priority != 0 && exchange.key() && !exchange.key()->key().may_set_priority) {
    return Error{
        ErrorCode::invalid_argument,
        "priority: this key may not set it (the word priority in ServerConfig::named_keys)",
        "priority"};
  }
  const PoolingTask is = app.engines.ready().engines.front().pooling.task;
  if (is == task) return {};
  return Error{ErrorCode::invalid_argument,
               is == PoolingTask::score
                   ? "This model scores pairs of texts (/score, /rerank): it has no embeddings"
                   : "This model has no scores; /v1/embeddings works",
               "model"};
}

Result<void> truncate(const openapi::PoolingRequest& request, const AppState& app,
                      std::vector<TokenId>& ids) {
  const std::int64_t most = app.engines.ready().max_model_len;
  const std::int64_t asked = request.truncate_prompt_tokens.value_or(most);
  if (asked > most) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("truncate_prompt_tokens is {}, but this model's maximum context "
                             "length is {} tokens",
                             asked, most),
                 "truncate_prompt_tokens"};
  }
  const auto keep = static_cast<std::size_t>(asked == -1 ? most : asked);
  if (ids.size() <= keep) return {};
  if (!request.truncate_prompt_tokens) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("This model's maximum context length is {} tokens. However, an input "
                             "has {}. Please reduce its length, or set truncate_prompt_tokens.",
                             most, ids.size()),
                 "input"};
  }
  const TokenId last = ids.back();
  ids.resize(keep);
  if (app.text.tokenizer().is_special(last)) ids.back() = last;
  return {};
}

namespace {

awaitable<Result<Vectors>> run_all(std::vector<PooledPrompt> prompts,
                                   const openapi::PoolingRequest& request, Exchange& exchange,
                                   AppState& app) {
  Vectors vectors;
  vectors.values.resize(prompts.size());
  std::deque<Running> running;
  std::size_t next = 0;
  while (next < prompts.size() || !running.empty()) {
    const bool wants_more = next < prompts.size() && running.size() < window(app);
    const bool may_have_more = wants_more && has_share(exchange, app);
    if (wants_more && !may_have_more && running.empty()) {
      app.metrics.request_rejected(Rejection::queue_full);
      co_return share_refusal();
    }
    if (may_have_more) {
      const auto tokens = static_cast<std::int64_t>(prompts[next].ids.size());
      // A copy: what does not find room is tried again.
      auto one = submit(prompts[next], next, request, exchange, app);
      if (one) {
        running.push_back(std::move(*one));
        vectors.prompt_tokens += tokens;
        ++next;
        continue;
      }
      if (one.error().code != ErrorCode::overloaded || running.empty()) {
        count_refusal(one.error(), exchange, app);
        co_return one.error();
      }
    }
    const std::size_t index = running.front().index;
    Running first = std::move(running.front());
    running.pop_front();
    auto vector = co_await finish(std::move(first));
    if (!vector) co_return vector.error();
    vectors.values[index] = std::move(*vector);
  }
  co_return vectors;
}

awaitable<void> run_into(Result<Vectors>& result, std::vector<PooledPrompt> prompts,
                         const openapi::PoolingRequest& request, Exchange& exchange,
                         AppState& app) {
  result = co_await run_all(std::move(prompts), request, exchange, app);
}

}  // namespace

awaitable<Result<Vectors>> run_prompts(std::vector<PooledPrompt> prompts,
                                       const openapi::PoolingRequest& request, Exchange& exchange,
                                       AppState& app) {
  const auto deadline = exchange.deadline(request.timeout);
  if (deadline == Clock::time_point::max())
    co_return co_await run_all(std::move(prompts), request, exchange, app);
  const auto left = deadline - Clock::now();
  if (left <= Clock::duration::zero()) co_return overdue_error();
  Result<Vectors> result = Error{};
  auto work = run_into(result, std::move(prompts), request, exchange, app);
  if (!co_await with_timeout(left, std::move(work))) co_return overdue_error();
  co_return result;
}

void normalize(std::vector<float>& vector) {
  double squares = 0;
  for (const float value : vector) squares += static_cast<double>(value) * value;
  if (squares == 0) return;
  const double factor = 1 / std::sqrt(squares);
  for (float& value : vector) value = static_cast<float>(value * factor);
}

float sigmoid(float x) { return 1.f / (1.f + std::exp(-x)); }

bool uses_activation(const openapi::PoolingRequest& request, const AppState& app) {
  return request.use_activation.value_or(
      app.engines.ready().engines.front().pooling.use_activation);
}

openapi::PoolingReply pooling_reply(const openapi::PoolingRequest& request,
                                    std::string_view prefix, const Vectors& vectors,
                                    const Exchange& exchange, const AppState& app) {
  return {.id = std::string(prefix) + request.request_id.value_or(exchange.id()),
          .created = std::time(nullptr),
          .model = reply_model(request.model, app),
          .prompt_tokens = vectors.prompt_tokens};
}

}  // namespace quire
