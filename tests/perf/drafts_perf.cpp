// What drafts bring: engines without and with them answer the same prompts in turn, and the
// processor time of each is counted. One thread of computing; nothing of HTTP.
//
//   drafts_perf MODEL --speculative-config JSON [--prompts MODEL] [--rounds N] [--streams N]
//     [--lines N] [--only drafts|plain] [--fixed 1] [--steps 1] [--swap 1]
//
// So many streams begin together, and the turn ends with the last of them; with --lines so many
// lines are asked for at once, and one begins where another ends.
// Paired by prompt, and the order of the two turns with each, so that what else the machine does
// strikes both. Where memory happens to lie makes one engine up to a tenth slower than its equal
// for as long as the process lives: take several, half of them with --swap 1, which makes the
// engine with drafts first. MODEL/eval.jsonl has the prompts; answers end where the reference's do,
// or are asked for --tokens N.

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "app/flags/speculative_json.h"
#include "base/log.h"
#include "cpu/cpu_backend.h"
#include "engine/core/engine_core.h"
#include "tests/engine/core/eval_lines.h"

namespace quire::test {
namespace {

struct Options {
  std::string model = "models/quire-tiny", prompts = {};
  std::string speculative = {};
  std::string only = {};
  int rounds = 2, streams = 1, lines = 0, tokens = 0, steps = 0, fixed = 0, swap = 0;
  float temperature = 0;
};

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Side {
  explicit Side(const EngineConfig& config)
      : core(config, EngineId{0},
             {.kind = DeviceKind::cpu,
              .device = make_cpu_device(),
              .ops = make_cpu_ops({.threads = 1})},
             [](std::string_view, double) {}) {}
  // Of a first round, in which memory is touched for the first time.
  void forget_costs() {
    seconds = 0;
    prompt_seconds = 0;
    per_batch.clear();
    costs.clear();
    before = core.stats();
    forecast_before = core.drafting().forecast();
  }

  EngineCore core;
  EngineStats before = {};
  DraftForecast forecast_before = {};
  double seconds = 0;
  std::uint64_t num_requests = 0;
  std::map<RequestId, std::vector<TokenId>> answers = {};
  std::vector<double> per_batch = {};
  struct Cost {
    std::int64_t steps = 0;
    double seconds = 0;
  };
  std::map<std::pair<int, int>, Cost> costs = {};  // by requests and tokens of a step
  double prompt_seconds = 0;  // of steps before which somebody had no token yet
};

EngineConfig config_of(const Options& options, bool drafts) {
  EngineConfig config;
  config.model.path = options.model;
  config.model.max_model_len = 2048;
  config.cache.kv_cache_memory_bytes = std::int64_t{256} << 20;
  config.scheduler.max_num_seqs = std::max(8, options.streams);
  config.cpu_threads = 1;
  config.deterministic = options.fixed > 0;  // of both: always as many drafts as can be
  if (!drafts) return config;
  const auto parsed = parse_speculative_config(options.speculative);
  if (parsed.has_error()) throw Failure(parsed.error());
  config.speculative = *parsed;
  return config;
}

void answer(Side& side, const Options& options, std::span<const EvalLine> lines, int round) {
  const double start = processor_seconds();
  for (const EvalLine& line : lines) {
    AddRequest request;
    request.id = RequestId{++side.num_requests};
    request.prompt = line.prompt;
    request.sampling.max_tokens =
        options.tokens > 0 ? options.tokens : static_cast<int>(line.reference.size());
    request.sampling.ignore_eos = true;
    request.sampling.temperature = options.temperature;
    request.sampling.seed = static_cast<std::uint64_t>(round);
    side.core.add(std::move(request));
  }
  const std::size_t all = side.num_requests;
  while (side.core.has_work()) {
    const bool is_prompt = side.answers.size() < all;
    const double begin = processor_seconds();
    const StepOutput output = side.core.step();
    if (is_prompt) side.prompt_seconds += processor_seconds() - begin;
    if (options.steps > 0) {
      Side::Cost& cost = side.costs[{output.stats.step_requests, output.stats.step_tokens}];
      cost.seconds += processor_seconds() - begin;
      ++cost.steps;
    }
    for (const TokenOutput& one : output.tokens) side.answers[one.id].push_back(one.token);
    for (const RequestOutput& one : output.requests) {
      auto& answer = side.answers[one.id];
      answer.insert(answer.end(), one.token_ids.begin(), one.token_ids.end());
    }
  }
  const double took = processor_seconds() - start;
  side.seconds += took;
  side.per_batch.push_back(took);
}

// Of the ratio of sums, by batches: what the noise of the machine leaves of it.
double standard_error(const Side& plain, const Side& drafts) {
  const double ratio = plain.seconds / drafts.seconds;
  double squares = 0;
  for (std::size_t i = 0; i < plain.per_batch.size(); ++i) {
    const double rest = plain.per_batch[i] - ratio * drafts.per_batch[i];
    squares += rest * rest;
  }
  return std::sqrt(squares) / drafts.seconds;
}

void report(const Side& side, const char* name) {
  EngineStats stats = side.core.stats();
  stats.generation_tokens -= side.before.generation_tokens;
  stats.steps -= side.before.steps;
  stats.drafts -= side.before.drafts;
  stats.draft_tokens -= side.before.draft_tokens;
  stats.accepted_draft_tokens -= side.before.accepted_draft_tokens;
  fmt::print("{:<8} {:>8} tokens {:>9.3f} s {:>8.2f} µs/token {:>8} steps", name,
             stats.generation_tokens, side.seconds,
             1e6 * side.seconds / static_cast<double>(stats.generation_tokens), stats.steps);
  if (stats.drafts > 0)
    fmt::print(
        ", {} drafting, {:.2f} drafts each, length {:.2f}", stats.drafts,
        static_cast<double>(stats.draft_tokens) / static_cast<double>(stats.drafts),
        1 + static_cast<double>(stats.accepted_draft_tokens) / static_cast<double>(stats.drafts));
  fmt::print("\n");
  for (const auto& [size, cost] : side.costs)
    if (cost.steps > 50)
      fmt::print("  {:>3} requests {:>4} tokens {:>7} steps {:>9.1f} µs each\n", size.first,
                 size.second, cost.steps, 1e6 * cost.seconds / static_cast<double>(cost.steps));
}

// What the pacer expected of the steps that it chose drafts for, by its own table (drafts behind a
// prompt's step are in it, too): of the time measured without.
void report_forecast(const Side& plain, const Side& drafts) {
  DraftForecast forecast = drafts.core.drafting().forecast();
  forecast.with -= drafts.forecast_before.with;
  forecast.without -= drafts.forecast_before.without;
  fmt::print(
      "predicted {:.3f}: {:.3f} s with drafts instead of {:.3f} s; all took {:.3f} s without "
      "and {:.3f} s with, of them prompts {:.3f} and {:.3f} s\n",
      plain.seconds / (plain.seconds - forecast.without + forecast.with), forecast.with,
      forecast.without, plain.seconds, drafts.seconds, plain.prompt_seconds, drafts.prompt_seconds);
}

int run(const Options& options) {
  const std::vector<EvalLine> lines =
      eval_lines(options.prompts.empty() ? options.model : options.prompts, -1.0);
  const bool drafts_first = options.swap > 0;
  Side first(config_of(options, drafts_first)), second(config_of(options, !drafts_first));
  Side &plain = drafts_first ? second : first, &drafts = drafts_first ? first : second;
  for (int round = 0; round < options.rounds + 1; ++round) {
    if (round == 1) plain.forget_costs(), drafts.forget_costs();
    const auto step = static_cast<std::size_t>(std::max(options.streams, options.lines));
    for (std::size_t at = 0; at + step <= lines.size(); at += step) {
      const auto batch = std::span(lines).subspan(at, step);
      const bool plain_first = (at / step + static_cast<std::size_t>(round)) % 2 == 0;
      for (const bool is_plain : {plain_first, !plain_first}) {
        if (options.only == (is_plain ? "drafts" : "plain")) continue;
        answer(is_plain ? plain : drafts, options, batch, round);
      }
    }
  }
  report(plain, "without");
  report(drafts, "with");
  if (!options.only.empty()) return 0;
  std::size_t num_other = 0;
  for (const auto& [id, answer] : plain.answers) num_other += answer != drafts.answers[id];
  fmt::print("ratio {:.3f} ± {:.3f}, {} of {} answers differ\n", plain.seconds / drafts.seconds,
             standard_error(plain, drafts), num_other, plain.answers.size());
  if (options.fixed == 0) report_forecast(plain, drafts);
  return 0;
}

}  // namespace
}  // namespace quire::test

int main(int argc, char** argv) {
  quire::test::Options options;
  const std::map<std::string, std::string*> texts{{"--speculative-config", &options.speculative},
                                                  {"--prompts", &options.prompts},
                                                  {"--only", &options.only}};
  const std::map<std::string, int*> numbers{
      {"--rounds", &options.rounds}, {"--streams", &options.streams}, {"--lines", &options.lines},
      {"--tokens", &options.tokens}, {"--steps", &options.steps},     {"--fixed", &options.fixed},
      {"--swap", &options.swap}};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto text = texts.find(name);
    const auto number = numbers.find(name);
    if (!name.starts_with("--")) {
      options.model = name;
    } else if (i + 1 < argc && text != texts.end()) {
      *text->second = argv[++i];
    } else if (i + 1 < argc && number != numbers.end()) {
      *number->second = std::atoi(argv[++i]);
    } else if (i + 1 < argc && name == "--temperature") {
      options.temperature = static_cast<float>(std::atof(argv[++i]));
    } else {
      fmt::print(stderr, "drafts_perf: {} is not known\n", name);
      return 2;
    }
  }
  return quire::test::run(options);
}
