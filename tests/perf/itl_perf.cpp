// What a bound on the time from token to token does to mixed traffic: short questions, and every
// sixth a long prompt, come at their own times (Poisson) to one engine without HTTP. Prints gaps
// between tokens, times to the first token, and how many requests met both limits.
//
//   itl_perf MODEL [--target N] [--quantization int4] [--rate 0.8] [--seconds 20] [--long 1200]
//     [--ttft 8000] [--itl 300] [--seed 5]
//
// --target, --ttft, --itl: milliseconds. The same seed is the same traffic.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "base/log.h"
#include "cpu/cpu_backend.h"
#include "engine/core/engine_core.h"

namespace quire::test {
namespace {

struct Options {
  std::string model = {}, quantization = {};
  int target = 0, long_prompt = 1200, seed = 5;
  double rate = 0.8, seconds = 20, ttft = 8000, itl = 300;
};

struct Asked {
  AddRequest request;
  double due = 0;  // seconds
  bool is_long = false;
  std::vector<double> times = {};  // of outputs
};

std::vector<Asked> traffic(const Options& options, int vocab_size) {
  std::mt19937 random(static_cast<unsigned>(options.seed));
  std::exponential_distribution<double> pause(options.rate);
  const auto from_to = [&](int least, int most) {
    return least + static_cast<int>(random() % static_cast<unsigned>(most - least));
  };
  std::vector<Asked> all;
  for (double due = 0; due < options.seconds; due += pause(random)) {
    Asked& one = all.emplace_back();
    one.due = due;
    one.is_long = all.size() % 6 == 4;
    const int length = one.is_long ? options.long_prompt : from_to(40, 160);
    for (int i = 0; i < length; ++i) one.request.prompt.push_back(from_to(1, vocab_size));
    one.request.id = RequestId{all.size()};
    one.request.sampling.max_tokens = one.is_long ? 16 : from_to(32, 64);
    one.request.sampling.ignore_eos = true;
    one.request.sampling.temperature = 0;
  }
  return all;
}

void answer(EngineCore& core, std::vector<Asked>& all) {
  const auto start = Clock::now();
  const auto seconds = [&](Clock::time_point time) {
    return std::chrono::duration<double>(time - start).count();
  };
  std::size_t next = 0;
  while (next < all.size() || core.has_work()) {
    for (; next < all.size() && all[next].due <= seconds(Clock::now()); ++next) {
      all[next].request.arrival = Clock::now();
      core.add(all[next].request);
    }
    if (!core.has_work()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    const StepOutput output = core.step();
    const auto take = [&](RequestId id) { all[id.value - 1].times.push_back(seconds(output.time)); };
    for (const TokenOutput& one : output.tokens) take(one.id);
    for (const RequestOutput& one : output.requests) take(one.id);
  }
}

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size()));
  return values[std::min(at, values.size() - 1)];
}

void report(const Options& options, const std::vector<Asked>& all, const EngineStats& stats) {
  std::vector<double> gaps, first, first_long;
  int good = 0;
  double end = 0;
  for (const Asked& one : all) {
    std::vector<double> own;
    for (std::size_t i = 1; i < one.times.size(); ++i)
      own.push_back(1e3 * (one.times[i] - one.times[i - 1]));
    const double waited = 1e3 * (one.times.front() - one.due);
    (one.is_long ? first_long : first).push_back(waited);
    good += waited <= options.ttft && quantile(own, 0.99) <= options.itl;
    gaps.insert(gaps.end(), own.begin(), own.end());
    end = std::max(end, one.times.back());
  }
  fmt::print("target {:4}: {} requests in {:.1f} s; gaps p50 {:.0f} p90 {:.0f} p99 {:.0f} max {:.0f} ms; "
             "first token p50 {:.0f} p99 {:.0f} ms, of long prompts p50 {:.0f} max {:.0f} ms; "
             "{:.2f} requests/s within the limits; steps whole {} cut {} least {}, late {}\n",
             options.target, all.size(), end, quantile(gaps, 0.5), quantile(gaps, 0.9),
             quantile(gaps, 0.99), quantile(gaps, 1), quantile(first, 0.5), quantile(first, 0.99),
             quantile(first_long, 0.5), quantile(first_long, 1), good / end, stats.pace.whole_steps,
             stats.pace.cut_steps, stats.pace.least_steps, stats.pace.late_steps);
}

int run(const Options& options) {
  EngineConfig config;
  config.model.path = options.model;
  config.model.quantization = options.quantization;
  config.model.max_model_len = 4096;
  config.cache.kv_cache_memory_bytes = std::int64_t{512} << 20;
  config.cache.enable_prefix_caching = false;
  config.scheduler.max_num_seqs = 64;
  config.scheduler.target_itl_ms = options.target;
  EngineCore core(config, EngineId{0},
                  {.kind = DeviceKind::cpu, .device = make_cpu_device(), .ops = make_cpu_ops({})},
                  [](std::string_view, double) {});
  std::vector<Asked> all = traffic(options, core.ready().vocab_size);
  answer(core, all);
  report(options, all, core.stats());
  return 0;
}

}  // namespace
}  // namespace quire::test

int main(int argc, char** argv) {
  using quire::test::Options;
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (!name.starts_with("--")) {
      options.model = name;
      continue;
    }
    if (++i == argc) return 2;
    const char* value = argv[i];
    if (name == "--target") options.target = std::atoi(value);
    else if (name == "--quantization") options.quantization = value;
    else if (name == "--rate") options.rate = std::atof(value);
    else if (name == "--seconds") options.seconds = std::atof(value);
    else if (name == "--long") options.long_prompt = std::atoi(value);
    else if (name == "--ttft") options.ttft = std::atof(value);
    else if (name == "--itl") options.itl = std::atof(value);
    else if (name == "--seed") options.seed = std::atoi(value);
    else return 2;
  }
  return options.model.empty() ? 2 : quire::test::run(options);
}
