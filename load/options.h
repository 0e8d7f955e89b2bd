#pragma once
// quire-load's command line.

#include <optional>
#include <string>
#include <vector>

#include "load/bench_serve.h"
#include "load/report.h"
#include "load/run.h"

namespace CLI {
class App;
}

namespace quire::load {

struct Options {
  std::vector<std::string> urls = {"http://127.0.0.1:8000"};
  std::string other_url;  // empty: nothing is compared
  std::string api_key;
  bool insecure = false;
  WorkloadOptions workload;
  RunOptions run;
  bool sweep = false;
  BenchServe bench_serve;
  double slo_ttft_ms = 0, slo_itl_ms = 0, slo_tpot_ms = 0, slo_e2e_ms = 0;  // 0: no level
  int patience = 0;                                                         // seconds
  double silence = 600;                                                     // seconds
  int repeats = 3;                                                          // pairs of runs
  std::string json_file, html_file, records_file;
  bool quiet = false;
};

void add_flags(CLI::App& app, Options& options);

// After parsing: what goes together and what a flag leaves open. Throws Failure.
void settle(const CLI::App& app, Options& options);

std::optional<ServiceLevel> level_of(const Options& options);
std::vector<Target> targets_of(const Options& options, const std::vector<std::string>& urls);
// What a report says of how it came about.
std::map<std::string, std::string> settings_of(const Options& options);

}  // namespace quire::load
