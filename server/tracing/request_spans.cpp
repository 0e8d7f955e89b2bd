#include "server/tracing/request_spans.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "server/http/trace_id.h"

namespace quire {

namespace {

using Steady = std::chrono::steady_clock;

std::string random_hex(int digits) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::string text;
  while (static_cast<int>(text.size()) < digits) text += fmt::format("{:016x}", random() | 1);
  return text;
}

// Of a point on the steady clock, by what both clocks say now.
std::int64_t epoch_nanos(Steady::time_point time) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now - (Steady::now() - time)).count();
}

double seconds(Steady::duration time) { return std::chrono::duration<double>(time).count(); }

Steady::time_point first_of_kind(const Timeline& one, DecisionKind kind) {
  const auto all = one.all();
  const auto found = std::ranges::find(all, kind, &Decision::kind);
  return found == all.end() ? one.begin : found->time;
}

Span engine_span(const Timeline& one, const Span& parent, std::string_view model) {
  Span span;
  span.trace_id = parent.trace_id;
  span.span_id = random_hex(16);
  span.parent_id = parent.span_id;
  span.name = "llm_request";
  span.begin = epoch_nanos(one.begin);
  span.end = epoch_nanos(one.begin + one.age());
  const auto started = first_of_kind(one, DecisionKind::started);
  span.attributes = {{"gen_ai.response.model", std::string(model)},
                     {"gen_ai.request.id", one.http_id},
                     {"gen_ai.latency.time_in_queue", seconds(started - one.begin)},
                     {"gen_ai.latency.e2e", seconds(one.age())}};
  for (const Decision& decision : one.all()) {
    if (decision.kind == DecisionKind::queued)
      span.attributes.emplace_back("gen_ai.usage.prompt_tokens", decision.second);
    if (decision.kind == DecisionKind::finished)
      span.attributes.emplace_back("gen_ai.usage.completion_tokens", decision.first);
    span.events.push_back({epoch_nanos(decision.time),
                           std::string(name_of(decision.kind)),
                           {{"quire.step", decision.step}, {"quire.why", sentence_of(decision)}}});
  }
  return span;
}

}  // namespace

std::vector<Span> request_spans(const Exchange& exchange, std::string_view path,
                                std::span<const Timeline> timelines, std::string_view model) {
  const HttpRequest& request = exchange.request();
  const TraceContext context = trace_context_of(request.traceparent);
  if (!context.trace_id.empty() && !context.sampled) return {};
  const int status = exchange.status() ? exchange.status() : 499;  // the client left
  std::vector<Span> spans;
  Span& own = spans.emplace_back();
  own.trace_id = context.trace_id.empty() ? random_hex(32) : std::string(context.trace_id);
  own.span_id = random_hex(16);
  own.parent_id = context.parent_id;
  own.name = fmt::format("{} {}", request.method_name, path);
  own.is_server = true;
  own.is_error = status >= 500;
  own.begin = epoch_nanos(exchange.arrival());
  own.end = epoch_nanos(Steady::now());
  own.attributes = {{"http.request.method", request.method_name},
                    {"http.route", std::string(path)},
                    {"http.response.status_code", std::int64_t{status}},
                    {"gen_ai.request.id", exchange.id()}};
  const Span parent = own;
  for (const Timeline& one : timelines) spans.push_back(engine_span(one, parent, model));
  return spans;
}

}  // namespace quire
