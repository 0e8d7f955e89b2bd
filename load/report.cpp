#include "load/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <numeric>

namespace quire::load {
namespace {

namespace json = boost::json;

// Nearest rank on sorted samples.
double percentile(const std::vector<double>& sorted, double fraction) {
  const auto rank =
      static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

json::object to_json(const Percentiles& p) {
  return {{"count", p.count}, {"mean", p.mean}, {"p50", p.p50},   {"p90", p.p90},
          {"p95", p.p95},     {"p99", p.p99},   {"p999", p.p999}, {"max", p.max}};
}

template <class T>
json::object to_json(const std::map<std::string, T>& values) {
  json::object object;
  for (const auto& [name, value] : values) object[name] = value;
  return object;
}

std::string row(const char* name, const Percentiles& p) {
  return fmt::format("{:<24}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}\n",
                     name, p.mean, p.p50, p.p90, p.p95, p.p99, p.p999, p.max);
}

double per_output_token(const Record& r) { return (r.end - r.first_token) / (r.output_tokens - 1); }

bool meets(const Record& record, const ServiceLevel& level) {
  if (record.first_token - record.due > level.time_to_first_token) return false;
  if (record.end - record.due > level.end_to_end) return false;
  if (record.output_tokens > 1 && per_output_token(record) > level.per_output_token) return false;
  std::vector<double> gaps(record.gaps.begin(), record.gaps.end());
  return gaps.empty() || Percentiles::of(std::move(gaps)).p99 <= level.inter_token;
}

}  // namespace

Percentiles Percentiles::of(std::vector<double> samples) {
  Percentiles p;
  p.count = samples.size();
  if (samples.empty()) return p;
  std::sort(samples.begin(), samples.end());
  p.mean =
      std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
  p.p50 = percentile(samples, 0.5);
  p.p90 = percentile(samples, 0.9);
  p.p95 = percentile(samples, 0.95);
  p.p99 = percentile(samples, 0.99);
  p.p999 = percentile(samples, 0.999);
  p.max = samples.back();
  return p;
}

Report summarize(const std::vector<Record>& records, double client_cpu_seconds,
                 std::optional<ServiceLevel> level) {
  Report report;
  std::vector<double> first, gaps, per_token, whole, lag, prompt, output;
  double begin = INFINITY, end = 0, first_sent = INFINITY, last_sent = 0;
  int good = 0;
  for (const Record& r : records) {
    const std::string outcome(name_of(r.outcome));
    ++report.outcomes[outcome];
    begin = std::min(begin, r.due);
    end = std::max(end, r.end);
    first_sent = std::min(first_sent, r.sent);
    last_sent = std::max(last_sent, r.sent);
    lag.push_back(1e3 * (r.sent - r.due));
    if (r.outcome != Outcome::ok) {
      ++report.failed;
      report.examples.try_emplace(outcome, r.error);
      continue;
    }
    ++report.ok;
    ++report.finish_reasons[r.finish_reason.empty() ? "none" : r.finish_reason];
    report.prompt_tokens += r.prompt_tokens;
    report.output_tokens += r.output_tokens;
    prompt.push_back(r.prompt_tokens);
    output.push_back(r.output_tokens);
    whole.push_back(1e3 * (r.end - r.due));
    if (level && meets(r, *level)) ++good;
    if (r.first_token == 0) continue;  // ended without text
    report.text_chunks += static_cast<std::int64_t>(r.gaps.size()) + 1;
    first.push_back(1e3 * (r.first_token - r.due));
    for (const float gap : r.gaps) gaps.push_back(1e3 * gap);
    if (r.output_tokens > 1) per_token.push_back(1e3 * per_output_token(r));
  }
  report.seconds = records.empty() ? 0 : end - begin;
  if (last_sent > first_sent) {
    report.sent_per_second = static_cast<double>(records.size() - 1) / (last_sent - first_sent);
  }
  report.time_to_first_token = Percentiles::of(std::move(first));
  report.inter_token = Percentiles::of(std::move(gaps));
  report.per_output_token = Percentiles::of(std::move(per_token));
  report.end_to_end = Percentiles::of(std::move(whole));
  report.send_lag = Percentiles::of(std::move(lag));
  report.prompt_length = Percentiles::of(std::move(prompt));
  report.output_length = Percentiles::of(std::move(output));
  if (report.seconds > 0) {
    report.client_cpu = client_cpu_seconds / report.seconds;
    if (level) report.goodput = good / report.seconds;
  }
  return report;
}

std::string Report::table() const {
  std::string text = fmt::format("{} ok, {} failed in {:.2f} s", ok, failed, seconds);
  for (const auto& [reason, count] : finish_reasons) text += fmt::format(", {} {}", count, reason);
  text += fmt::format(
      "\n{:.2f} requests/s, {:.1f} output tokens/s, {:.1f} prompt tokens/s, sent {:.2f} "
      "requests/s, client {:.2f} cores\n",
      requests_per_second(), output_tokens_per_second(),
      seconds > 0 ? static_cast<double>(prompt_tokens) / seconds : 0, sent_per_second, client_cpu);
  if (goodput) text += fmt::format("{:.2f} requests/s within the service level\n", *goodput);
  text += fmt::format("{:<24}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "", "mean", "p50",
                      "p90", "p95", "p99", "p99.9", "max");
  text += row("time to first token ms", time_to_first_token);
  text += row("between chunks ms", inter_token);
  text += row("per output token ms", per_output_token);
  text += row("end to end ms", end_to_end);
  text += row("send lag ms", send_lag);
  text += row("prompt tokens", prompt_length);
  text += row("output tokens", output_length);
  for (const auto& [outcome, example] : examples) {
    text += fmt::format("{} {}: {}\n", outcomes.at(outcome), outcome, example);
  }
  return text;
}

std::string Report::json(const std::map<std::string, std::string>& settings) const {
  json::object root{{"settings", to_json(settings)},
                    {"seconds", seconds},
                    {"ok", ok},
                    {"failed", failed},
                    {"outcomes", to_json(outcomes)},
                    {"examples", to_json(examples)},
                    {"finish_reasons", to_json(finish_reasons)},
                    {"requests_per_second", requests_per_second()},
                    {"output_tokens_per_second", output_tokens_per_second()},
                    {"prompt_tokens", prompt_tokens},
                    {"output_tokens", output_tokens},
                    {"text_chunks", text_chunks},
                    {"sent_per_second", sent_per_second},
                    {"client_cpu_cores", client_cpu},
                    {"time_to_first_token_ms", to_json(time_to_first_token)},
                    {"inter_token_ms", to_json(inter_token)},
                    {"per_output_token_ms", to_json(per_output_token)},
                    {"end_to_end_ms", to_json(end_to_end)},
                    {"send_lag_ms", to_json(send_lag)},
                    {"prompt_length", to_json(prompt_length)},
                    {"output_length", to_json(output_length)}};
  if (goodput) root["goodput_requests_per_second"] = *goodput;
  return boost::json::serialize(root);
}

}  // namespace quire::load
