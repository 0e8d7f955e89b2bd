// GET /debug/blocks: who holds which blocks of the KV cache, beside what was planned.

#include <algorithm>
#include <array>
#include <boost/asio/awaitable.hpp>

#include "openapi/json_writer.h"
#include "server/http/error_reply.h"
#include "server/routes/routes.h"

namespace quire {

namespace {

using openapi::JsonWriter;

void write_plan(JsonWriter& json, const Ready& ready) {
  json.key("plan").begin_object().key("device").string(ready.device);
  json.key("block_size")
      .integer(ready.block_size)
      .key("max_model_len")
      .integer(ready.max_model_len);
  json.key("kv_cache_size_tokens").integer(ready.kv_cache_size_tokens);
  json.key("max_concurrency").number(ready.max_concurrency);
  json.key("kv_cache_dtype").string(ready.kv_cache_dtype).key("memory").begin_array();
  for (const MemoryUseInfo& use : ready.memory) {
    json.begin_object().key("purpose").string(use.purpose);
    json.key("planned_bytes").integer(use.planned_bytes);
    json.key("allocated_bytes").integer(use.allocated_bytes).end_object();
  }
  json.end_array().end_object();
}

void write_groups(JsonWriter& json, const BlockReport& report, const Ready& ready) {
  json.key("groups").begin_array();
  for (std::size_t i = 0; i < report.counts.size(); ++i) {
    const BlockCounts& counts = report.counts[i];
    const KvGroupInfo group = i < ready.groups.size() ? ready.groups[i] : KvGroupInfo{};
    json.begin_object().key("kind").string(group.kind).key("block_size").integer(group.block_size);
    json.key("layers").integer(group.layers).key("page_bytes").integer(group.page_bytes);
    json.key("held").integer(counts.held).key("shared").integer(counts.shared);
    json.key("cached").integer(counts.cached).end_object();
  }
  json.end_array();
}

// A letter for each cell: free, cached, held, shared.
std::string letters_of(const std::vector<std::int32_t>& states) {
  constexpr std::string_view kLetters = "fchs";
  std::string text;
  for (const std::int32_t state : states)
    text += kLetters[static_cast<std::size_t>(std::clamp(state, 0, 3))];
  return text;
}

// Places from zero; −1: none.
void write_places(JsonWriter& json, const char* name, const std::vector<std::int32_t>& places) {
  json.key(name).begin_array();
  for (const std::int32_t place : places) json.integer(place - 1);
  json.end_array();
}

void write_requests(JsonWriter& json, const BlockReport& report, const Timelines& timelines) {
  json.key("requests").begin_array();
  for (const BlockHolder& one : report.requests) {
    json.begin_object().key("request_id").string(timelines.http_id(one.request));
    json.key("engine_request").integer(static_cast<std::int64_t>(one.request.value));
    json.key("group").integer(one.group).key("tokens").integer(one.tokens);
    json.key("blocks").integer(one.blocks).key("shared").integer(one.shared).end_object();
  }
  json.end_array();
}

void write(JsonWriter& json, const BlockReport& report, const Ready& ready, const AppState& app) {
  json.begin_object().key("engine").integer(static_cast<std::int64_t>(report.engine.value));
  json.key("num_blocks").integer(report.num_blocks);
  json.key("blocks_per_cell").integer(report.blocks_per_cell);
  write_plan(json, ready);
  write_groups(json, report, ready);
  json.key("cells").string(letters_of(report.states));
  write_places(json, "cell_groups", report.groups);
  write_places(json, "cell_requests", report.holders);
  write_requests(json, report, app.timelines);
  json.end_object();
}

}  // namespace

awaitable<void> get_debug_blocks(Exchange& exchange, AppState& app) {
  auto reports = co_await app.engines.report_blocks();
  std::ranges::sort(reports, {}, [](const BlockReport& report) { return report.engine.value; });
  const auto& engines = app.engines.ready().engines;
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("engines").begin_array();
  for (const BlockReport& report : reports) {
    const std::size_t place = report.engine.value;
    if (place < engines.size()) write(json, report, engines[place], app);
  }
  json.end_array().end_object();
  co_await exchange.reply(json_reply(std::move(body)));
}

}  // namespace quire
