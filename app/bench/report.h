#pragma once
// A benchmark's figures beside the machine's limits, as a table and as JSON.

#include <optional>
#include <string>
#include <vector>

#include "app/bench/model.h"
#include "app/bench/run.h"
#include "cpu/machine_limits.h"

namespace quire {

struct BenchLine {
  BenchCase what;
  std::vector<double> rates;       // tokens a second, by repeat
  std::vector<double> peer_rates;  // likewise, of the same repeats; empty: no peer
};

struct BenchReport {
  std::string model, dtype, device, instructions;
  int threads = 0;
  BenchModel size;
  double kv_element_bytes = 2;
  std::optional<MachineLimits> before, after;  // probed; none on a GPU
  double load_seconds = 0;
  double resident_bytes = 0;  // of this process after the last case
  double planned_bytes = 0;   // of weights and KV cache, the former in files too
  std::string peer;           // command
  std::vector<BenchLine> lines;
};

double median(std::vector<double> values);
// Of the rates in pairs, ours by the peer's; 0 without a peer.
double peer_ratio(const BenchLine& line);
// What of it the case reads a second, and multiplies; 0: not known.
double gigabytes_per_second(const BenchReport& report, const BenchLine& line);
double giga_operations_per_second(const BenchReport& report, const BenchLine& line);

std::string bench_table(const BenchReport& report);
std::string bench_json(const BenchReport& report);

}  // namespace quire
