// GET /tokenizer_info, /server_info, /is_sleeping, /openapi.json; POST /reset_prefix_cache; POST
// /sleep and /wake_up, which are refused.

#include <boost/asio/awaitable.hpp>
#include <utility>

#include "base/log.h"

#include "openapi/contract.h"
#include "openapi/dto_json.h"
#include "openapi/json_writer.h"
#include "server/http/error_reply.h"
#include "server/routes/routes.h"

namespace quire {

namespace {

using openapi::JsonWriter;

// As they were asked for; what came of them is with the models.
void write_config(JsonWriter& json, const EngineConfig& config) {
  const SchedulerConfig& scheduler = config.scheduler;
  json.begin_object().key("max_num_seqs").integer(scheduler.max_num_seqs);
  json.key("max_num_batched_tokens").integer(scheduler.max_num_batched_tokens);
  json.key("max_num_queued_reqs").integer(scheduler.max_num_queued_reqs);
  json.key("scheduling_policy");
  json.string(scheduler.policy == SchedulingPolicy::priority ? "priority" : "fcfs");
  json.key("enable_chunked_prefill").boolean(scheduler.enable_chunked_prefill);
  json.key("enable_prefix_caching").boolean(config.cache.enable_prefix_caching);
  json.key("tensor_parallel_size").integer(config.parallel.tensor_parallel_size);
  json.key("data_parallel_size").integer(config.parallel.data_parallel_size);
  json.key("num_speculative_tokens").integer(config.speculative.num_speculative_tokens);
  json.key("deterministic").boolean(config.deterministic).end_object();
}

Reply refusal(std::string_view why) {
  return error_reply({ErrorCode::unsupported, std::string(why), {}});
}

}  // namespace

awaitable<void> get_tokenizer_info(Exchange& exchange, AppState& app) {
  co_await exchange.reply(json_reply(app.text.defaults().tokenizer_info));
}

awaitable<void> get_server_info(Exchange& exchange, AppState& app) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("version").string(quire_version()).key("config");
  write_config(json, app.engine_config);
  json.key("models").raw(openapi::to_json(model_cards(app))).end_object();
  co_await exchange.reply(json_reply(std::move(body)));
}

awaitable<void> get_openapi(Exchange& exchange, AppState&) {
  co_await exchange.reply(json_reply(std::string(openapi::contract_json())));
}

awaitable<void> get_is_sleeping(Exchange& exchange, AppState&) {
  co_await exchange.reply(json_reply(R"({"is_sleeping":false})"));
}

awaitable<void> post_sleep(Exchange& exchange, AppState&) {
  co_await exchange.reply(
      refusal("This server does not sleep: weights and cache stay where they are. Stop it to free "
              "their memory; it is ready again in the time that mapping the weights takes"));
}

awaitable<void> post_wake_up(Exchange& exchange, AppState&) {
  co_await exchange.reply(refusal("This server never sleeps, so there is nothing to wake up"));
}

// As in vLLM nothing is forgotten while a request holds blocks; here the reply says so.
awaitable<void> post_reset_prefix_cache(Exchange& exchange, AppState& app) {
  const auto answers = co_await app.engines.reset_prefix_cache();
  int blocks_in_use = 0;
  bool done = std::cmp_equal(answers.size(), app.engines.num_engines());
  for (const PrefixCacheReset& answer : answers) {
    done &= answer.done;
    blocks_in_use += answer.blocks_in_use;
  }
  if (done) {
    log::info("engine.prefix_cache_reset", {{"request_id", exchange.id()}});
    co_return co_await exchange.reply(json_reply(R"({"status":"reset"})"));
  }
  const Error error{ErrorCode::unavailable,
                    blocks_in_use > 0
                        ? "Requests hold " + std::to_string(blocks_in_use) +
                              " blocks of the cache: nothing was forgotten; try again when they "
                              "have ended"
                        : "An engine did not answer",
                    {}};
  co_await exchange.reply(error_reply(error));
}

}  // namespace quire
