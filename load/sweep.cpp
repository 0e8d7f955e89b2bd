#include "load/sweep.h"

#include <fmt/format.h>

namespace quire::load {

std::optional<std::size_t> knee_of(const std::vector<SweepStep>& steps) {
  std::optional<std::size_t> knee;
  double best = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double speed = steps[i].report.output_tokens_per_second();
    if (speed <= best * kWorthwhileGain) continue;
    best = speed;
    knee = i;
  }
  return knee;
}

bool is_over(const std::vector<SweepStep>& steps) {
  if (steps.empty()) return false;
  if (steps.back().report.ok == 0) return true;
  const auto knee = knee_of(steps);
  return knee && *knee + 2 < steps.size();
}

std::string sweep_table(const std::vector<SweepStep>& steps) {
  std::string text =
      fmt::format("{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>10}\n", "concurrency", "requests/s",
                  "tokens/s", "ttft p50", "ttft p99", "gap p50", "gap p99", "failed");
  const auto knee = knee_of(steps);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Report& r = steps[i].report;
    text += fmt::format("{:>12}{:>12.2f}{:>12.1f}{:>12.2f}{:>12.2f}{:>12.2f}{:>12.2f}{:>10}{}\n",
                        steps[i].concurrency, r.requests_per_second(), r.output_tokens_per_second(),
                        r.time_to_first_token.p50, r.time_to_first_token.p99, r.inter_token.p50,
                        r.inter_token.p99, r.failed, knee == i ? "  knee" : "");
  }
  return text;
}

std::string sweep_json(const std::vector<SweepStep>& steps) {
  std::string rows;
  for (const SweepStep& step : steps) {
    rows += fmt::format("{}{{\"concurrency\":{},\"report\":{}}}", rows.empty() ? "" : ",",
                        step.concurrency, step.report.json({}));
  }
  const auto knee = knee_of(steps);
  const std::string at = knee ? std::to_string(steps[*knee].concurrency) : "null";
  return fmt::format("{{\"knee\":{},\"sweep\":[{}]}}", at, rows);
}

}  // namespace quire::load
