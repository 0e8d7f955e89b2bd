#pragma once
// Numbers from records: percentiles, rates, errors by kind; as a table for people and JSON for
// programs.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "load/client.h"

namespace quire::load {

struct Percentiles {
  std::size_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, p999 = 0, max = 0;
  static Percentiles of(std::vector<double> samples);
};

inline constexpr double kNoLevel = 1e9;

// Service level for goodput: a request counts when it met all. Seconds.
struct ServiceLevel {
  double time_to_first_token = kNoLevel;
  double inter_token = kNoLevel;  // p99 of the request's own gaps
  double per_output_token = kNoLevel;
  double end_to_end = kNoLevel;
};

struct Report {
  // Requests that ended ok, and what the others died of (first of each kind as an example).
  std::map<std::string, int> outcomes;
  std::map<std::string, std::string> examples;
  std::map<std::string, int> finish_reasons;
  double seconds = 0;  // first request due … last end
  int ok = 0;
  int failed = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
  std::int64_t text_chunks = 0;

  // Milliseconds, of requests that ended ok.
  Percentiles time_to_first_token;
  Percentiles inter_token;       // every gap between text chunks
  Percentiles per_output_token;  // per request: (end − first token) / (output tokens − 1)
  Percentiles end_to_end;
  Percentiles send_lag;  // sent − due, of all requests: large means this client was the bottleneck
  Percentiles prompt_length, output_length;  // tokens

  // Requests a second over the time in which they were sent: below what was asked for, the client
  // or its most connections at a time held them back.
  double sent_per_second = 0;
  double client_cpu = 0;          // cores used by this process
  std::optional<double> goodput;  // requests/s that met the service level

  double requests_per_second() const { return seconds > 0 ? ok / seconds : 0; }
  double output_tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(output_tokens) / seconds : 0;
  }
  std::string table() const;
  std::string json(const std::map<std::string, std::string>& settings) const;
};

Report summarize(const std::vector<Record>& records, double client_cpu_seconds,
                 std::optional<ServiceLevel> level);

}  // namespace quire::load
