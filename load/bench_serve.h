#pragma once
// The flags of vLLM's `bench serve` that quire-load does not call the same: what they mean here.

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace quire::load {

struct Options;

struct BenchServe {
  std::string backend, endpoint, dataset, served_name, host;
  std::string result_file, result_folder;
  std::string metrics, percentiles;
  std::vector<std::string> goodput;  // "ttft:500", milliseconds
  int port = 0;
  bool save_result = false;
  bool trusts_code = false;
};

void add_bench_serve_flags(CLI::App& app, BenchServe& flags);

// Into the options; throws Failure for what quire-load does not do, with what works.
void apply(const BenchServe& flags, Options& options);

}  // namespace quire::load
