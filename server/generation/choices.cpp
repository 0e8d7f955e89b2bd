#include "server/generation/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/this_coro.hpp>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/task_group.h"
#include "server/generation/request_params.h"
#include "server/http/share_refusal.h"
#include "server/metrics/rejection.h"
#include "server/model_name.h"

namespace quire {

Error overdue_error() {
  return {ErrorCode::timeout,
          "The answer was not complete within the time that this request gives itself "
          "(X-Request-Timeout, or the member timeout)",
          {}};
}

namespace {

RequestEnd end_of(std::string_view finish_reason) {
  return finish_reason == "length" ? RequestEnd::length : RequestEnd::stop;
}

const Error kShuttingDown{ErrorCode::unavailable, "The server is shutting down", {}};

Error engine_error(const RequestOutput& output) {
  if (output.error) return *output.error;
  return {ErrorCode::internal, "The engine ended this request with an error", {}};
}

awaitable<void> take_next(Generation& generation, std::optional<RequestOutput>& output) {
  output = co_await generation.next();
}

// False: its deadline came first.
awaitable<bool> next_in_time(Choice& choice, std::optional<RequestOutput>& output) {
  const auto left = choice.deadline - Clock::now();
  if (left <= Clock::duration::zero()) co_return false;
  co_return co_await with_timeout(left, take_next(choice.generation, output));
}

// What the engine still does for it is of no use to anybody.
awaitable<void> end_overdue(Choice& choice, ChoiceSink& sink) {
  choice.generation.cancel();
  choice.tracker.on_end(RequestEnd::abort);
  const Error error = overdue_error();
  co_await sink.on_error(choice, error);
}

// An answer that began anew costs its key nothing twice.
void charge(Choice& choice) {
  const int more = choice.text.num_tokens() - choice.charged_tokens;
  if (choice.key == nullptr || more <= 0) return;
  choice.key->spend_tokens(more);
  choice.charged_tokens += more;
}

awaitable<void> run_choice(Choice& choice, ChoiceSink& sink) {
  std::optional<RequestOutput> output;
  while (true) {
    if (choice.deadline == Clock::time_point::max()) {
      output = co_await choice.generation.next();
    } else if (!co_await next_in_time(choice, output)) {
      co_return co_await end_overdue(choice, sink);
    }
    if (!output) co_return;
    choice.cached_tokens = std::max(choice.cached_tokens, output->num_cached_tokens);
    if (output->finish_reason == FinishReason::error) {
      choice.tracker.on_end(RequestEnd::error);
      co_await sink.on_error(choice, engine_error(*output));
      co_return;
    }
    if (output->finish_reason == FinishReason::abort) {
      choice.tracker.on_end(RequestEnd::abort);
      co_await sink.on_error(choice, kShuttingDown);
      co_return;
    }
    if (choice.generation.starts_over()) {
      choice.text.start_over();
      sink.forget(choice);
    }
    ChoiceDelta delta = choice.text.push(*output);
    charge(choice);
    choice.tracker.on_output(*output, choice.generation.token_times(), choice.text.num_tokens());
    const std::string finish_reason = delta.finish_reason;
    if (!finish_reason.empty()) {
      choice.tracker.on_end(end_of(finish_reason));
      choice.generation.cancel();
    }
    if (!co_await sink.on_delta(choice, std::move(delta)) || !finish_reason.empty()) co_return;
    choice.generation.reuse(std::move(*output));
  }
}

SamplingParams for_choice(SamplingParams params, int index) {
  if (params.seed) *params.seed += static_cast<std::uint64_t>(index);
  return params;
}

}  // namespace

ChoicePlan::ChoicePlan(const openapi::GenerationRequest& of)
    : request(of),
      text{.skip_special_tokens = of.skip_special_tokens,
           .stop = of.stop,
           .include_stop = of.include_stop_str_in_output,
           .min_tokens = static_cast<int>(of.min_tokens),
           .stop_token_ids = of.stop_token_ids,
           .wants_token_ids = of.return_token_ids,
           .tokens_as_ids = of.return_tokens_as_token_ids} {
  if (of.prompt_logprobs) prompt_logprobs = static_cast<int>(*of.prompt_logprobs);
}

namespace {

// Every choice keeps its own copy, and searches its text for all of them.
constexpr std::size_t kMaxStopBytes = 4096, kMaxStopBytesTogether = 65536;

Result<void> check_sizes(const openapi::GenerationRequest& request, int vocab_size) {
  std::size_t together = 0;
  for (const std::string& stop : request.stop) {
    together += stop.size();
    if (stop.size() <= kMaxStopBytes && together <= kMaxStopBytesTogether) continue;
    return Error{ErrorCode::invalid_argument,
                 fmt::format("stop: a string may have {} bytes, and all together {}", kMaxStopBytes,
                             kMaxStopBytesTogether),
                 "stop"};
  }
  const std::size_t num_allowed = request.allowed_token_ids.size();
  if (vocab_size > 0 && num_allowed > static_cast<std::size_t>(vocab_size)) {
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("allowed_token_ids has {} entries, the vocabulary {}", num_allowed, vocab_size),
        "allowed_token_ids"};
  }
  return {};
}

}  // namespace

Result<void> check_request(const openapi::GenerationRequest& request, const AppState& app) {
  if (const auto ok = check_sizes(request, app.engines.ready().vocab_size); !ok) return ok.error();
  if (!request.model.empty() && !is_model(request.model, app.config)) {
    return Error{ErrorCode::not_found,
                 fmt::format("The model `{}` does not exist.", request.model.substr(0, 200)),
                 "model"};
  }
  if (!request.unsupported.empty()) {
    const std::string& name = request.unsupported.front();
    return Error{ErrorCode::unsupported, name + " is not supported by this server", name};
  }
  if (request.priority != 0 && app.engine_config.scheduler.policy != SchedulingPolicy::priority) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("Got priority {}, but requests are served first come, first served; "
                             "start the server with SchedulerConfig::policy priority",
                             request.priority),
                 "priority"};
  }
  for (const std::string& name : request.unknown_members) {
    log::debug("request.unknown_member", {{"name", name}});
  }
  return {};
}

Result<void> truncate_prompt(const openapi::GenerationRequest& request, const AppState& app,
                             std::vector<TokenId>& prompt) {
  if (!request.truncate_prompt_tokens) return {};
  const std::int64_t max_model_len = app.engines.ready().max_model_len;
  std::int64_t keep = *request.truncate_prompt_tokens;
  if (keep > max_model_len) {
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("truncate_prompt_tokens is {}, but this model's maximum context length "
                    "is {} tokens",
                    keep, max_model_len),
        "truncate_prompt_tokens"};
  }
  if (keep < 0) keep = std::max<std::int64_t>(1, max_model_len - request.max_tokens.value_or(1));
  const auto excess = static_cast<std::ptrdiff_t>(prompt.size()) - keep;
  if (excess <= 0) return {};
  const auto cut = request.truncates_right ? prompt.end() - excess : prompt.begin();
  prompt.erase(cut, cut + excess);
  return {};
}

namespace {

Result<void> check_room(const openapi::GenerationRequest& request, std::size_t prompts,
                        const Exchange& exchange, AppState& app) {
  const std::int64_t wanted = request.n * static_cast<std::int64_t>(prompts);
  const auto now = FairShare::Clock::now();
  const auto room = app.engines.check_room(wanted);
  if (!room && room.error().code == ErrorCode::overloaded) {
    app.metrics.request_rejected(why_rejected(app.engines, {}));
    app.shares.turned_away(exchange.client(), now);
  }
  if (!room || app.shares.allows(exchange.client(), wanted, app.engines.num_free(), now))
    return room;
  app.metrics.request_rejected(Rejection::queue_full);
  return share_refusal();
}

// What is kept for somebody else, or fetched from there, is one prompt's and is used once.
Result<void> check_transfer(const openapi::GenerationRequest& request, std::size_t prompts,
                            const AppState& app) {
  const bool transfers = app.engine_config.kv_transfer.role != KvRole::none;
  if (!transfers || request.kv_transfer_params.empty()) return {};
  if (request.n == 1 && prompts == 1) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("kv_transfer_params works with one prompt and n 1, not with {} and {}",
                           prompts, request.n),
               "kv_transfer_params"};
}

// Appends n choices; those of a prompt before are aborted by their owner when this fails.
Result<void> submit_prompt(const ChoicePlan& plan,
                           const std::shared_ptr<const ChoiceTextOptions>& text, Exchange& exchange,
                           AppState& app, int prompt_index, std::vector<TokenId> prompt,
                           std::vector<Choice>& choices) {
  const auto& request = plan.request;
  if (request.priority != 0 && exchange.key() && !exchange.key()->key().may_set_priority) {
    return Error{
        ErrorCode::invalid_argument,
        "priority: this key may not set it (the word priority in ServerConfig::named_keys)",
        "priority"};
  }
  const ReadyInfo& ready = app.engines.ready();
  const auto prompt_tokens = static_cast<int>(prompt.size());
  auto params = sampling_params(
      request, app.text.defaults(),
      {prompt_tokens, ready.max_model_len, plan.default_max_tokens, plan.text.prompt_only});
  if (!params) return params.error();
  params->logprobs = plan.logprobs;
  params->prompt_logprobs = plan.prompt_logprobs;
  params->constraint = plan.constraint;
  params->bad_words = plan.bad_words;
  const auto prompt_end = std::span(prompt).last(std::min(prompt.size(), ChoiceText::kPromptEnd));

  const auto n = static_cast<int>(request.n);
  const auto siblings = std::make_shared<SiblingChoices>();
  for (int i = 0; i < n; ++i) {
    AddRequest add;
    add.prompt = prompt;
    add.sampling = for_choice(*params, i);
    add.eos_token_ids = app.text.defaults().eos_token_ids;
    add.priority = static_cast<int>(request.priority);
    add.client = exchange.client();
    add.cache_salt = request.cache_salt;
    add.transfer_params = request.kv_transfer_params;
    if (!add.transfer_params.empty()) add.transfer_name = plan.transfer_name;
    add.arrival = exchange.arrival();
    auto generation = app.engines.submit(std::move(add), exchange.engine());
    if (!generation) {
      if (generation.error().code == ErrorCode::overloaded) {
        app.metrics.request_rejected(why_rejected(app.engines, exchange.engine()));
        app.shares.turned_away(exchange.client(), FairShare::Clock::now());
      }
      return generation.error();
    }
    exchange.set_fetch_params({});  // its engine says what becomes of it
    app.timelines.begin(generation->id(), exchange.id());
    if (!exchange.push_name().empty() && app.engines.num_engines() > 1)
      app.engines.tell_push(exchange.push_name(), generation->engine());
    ChoiceTracker tracker(app.metrics, generation->engine(), exchange.arrival(), prompt_tokens,
                          params->max_tokens, n, siblings);
    choices.push_back({static_cast<int>(choices.size()), prompt_index, prompt_tokens, 0,
                       std::move(*generation), ChoiceText(app.text.tokenizer(), text, prompt_end),
                       std::move(tracker), FairShare::Held(app.shares, exchange.client()),
                       exchange.key(), 0, exchange.deadline(request.timeout)});
    if (exchange.key() != nullptr) exchange.key()->spend_tokens(i == 0 ? prompt_tokens : 0);
  }
  return {};
}

}  // namespace

Result<std::vector<Choice>> submit_choices(const ChoicePlan& plan, Exchange& exchange,
                                           AppState& app,
                                           std::vector<std::vector<TokenId>> prompts) {
  const auto text = std::make_shared<const ChoiceTextOptions>(plan.text);
  std::vector<Choice> choices;
  const std::scoped_lock lock(app.submitting);
  if (const auto ok = check_transfer(plan.request, prompts.size(), app); !ok) return ok.error();
  if (const auto ok = check_room(plan.request, prompts.size(), exchange, app); !ok)
    return ok.error();
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto ok = submit_prompt(plan, text, exchange, app, static_cast<int>(i),
                                  std::move(prompts[i]), choices);
    if (!ok) return ok.error();
  }
  return choices;
}

awaitable<bool> run_choices(std::vector<Choice>& choices, ChoiceSink& sink, Exchange& exchange) {
  const Exchange::LeavingWatch client(exchange, [&choices] {
    for (Choice& choice : choices) choice.generation.cancel();
  });
  if (sink.can_forget()) {
    for (Choice& choice : choices) choice.generation.let_start_over();
  }
  if (choices.size() == 1) {
    co_await run_choice(choices.front(), sink);
  } else {
    TaskGroup group(co_await asio::this_coro::executor);
    for (Choice& choice : choices) group.spawn(run_choice(choice, sink));
    co_await group.join();
  }
  co_return !client.has_left();
}

openapi::Usage usage_of(const std::vector<Choice>& choices, const TextDefaults& defaults) {
  openapi::Usage usage;
  std::int64_t cached = 0;
  int last_prompt = -1;
  for (const Choice& choice : choices) {
    usage.completion_tokens += choice.text.num_tokens();
    if (const auto reasoning = choice.text.num_reasoning_tokens()) {
      usage.reasoning_tokens = usage.reasoning_tokens.value_or(0) + *reasoning;
    }
    if (std::exchange(last_prompt, choice.prompt) == choice.prompt) continue;
    usage.prompt_tokens += choice.prompt_tokens;
    cached += choice.cached_tokens;
  }
  if (defaults.prompt_tokens_details) usage.cached_tokens = cached;
  return usage;
}

}  // namespace quire
