#include "app/bench/bench_main.h"

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "app/args/exit_codes.h"
#include "app/args/failure_text.h"
#include "app/args/forgiving_args.h"
#include "app/args/idle_flags.h"
#include "app/bench/peer.h"
#include "app/bench/report.h"
#include "app/engines/backends.h"
#include "app/flags/engine_flags.h"
#include "app/flags/graph_flags.h"
#include "app/models/pull_main.h"
#include "engine/core/served_model.h"

namespace quire {
namespace {

struct BenchFlags {
  EngineConfig engine;
  std::vector<int> prompts = {512}, generate = {128}, batches = {1}, depths = {0};
  int repeats = 5;
  std::string json, peer;
  bool generate_is_asked = false;
};

void add_flags(CLI::App& app, BenchFlags& flags) {
  flags.engine.cache.enable_prefix_caching = false;
  add_engine_flags(app, flags.engine);
  const auto numbers = [&](const char* names, std::vector<int>& values, int least, const char* text) {
    app.add_option(names, values, text)->delimiter(',')->check(CLI::Range(least, 1 << 20));
  };
  in_group(app, "Benchmark", [&] {
    numbers("-p,--n-prompt", flags.prompts, 0, "Tokens of the prompts that are timed; 0: none (512)");
    numbers("-n,--n-gen", flags.generate, 0, "Tokens generated after a prompt; 0: none (128)");
    numbers("-b,--batch", flags.batches, 1, "Requests that generate together (1)");
    numbers("-D,--depth", flags.depths, 0, "Tokens of context that generation begins after (0)");
    app.add_option("-r,--repetitions", flags.repeats, "Times that each case runs (5)")
        ->check(CLI::Range(1, 1000));
    app.add_option("--compare", flags.peer,
                   "Command of a peer that takes -p and -n and prints llama-bench's JSON: runs in "
                   "turn with each repetition of the cases of one request");
    app.add_option("--json", flags.json, "File to write all figures to; - for standard output");
  });
}

// A pooling model has prompts alone.
void drop_generation(BenchFlags& flags) {
  if (!read_served_model(flags.engine).pooling.pools()) return;
  if (flags.generate.size() == 1 && flags.generate.front() == 0) return;
  if (flags.generate_is_asked)
    throw Failure(ErrorCode::invalid_argument,
                  "-n: this is a pooling model, which generates nothing; what works: -n 0, or no -n");
  flags.generate.clear();
}

std::vector<BenchCase> cases_of(const BenchFlags& flags) {
  std::vector<BenchCase> cases;
  for (const int prompt : flags.prompts)
    if (prompt > 0) cases.push_back({.prompt = prompt});
  for (const int generate : flags.generate)
    for (const int depth : flags.depths)
      for (const int batch : flags.batches)
        if (generate > 0) cases.push_back({.generate = generate, .batch = batch, .depth = depth});
  if (cases.empty()) throw Failure(ErrorCode::invalid_argument, "-p 0 and -n 0 leave nothing to run");
  return cases;
}

// What the flags leave open, no larger than the cases need.
void complete(EngineConfig& engine, const std::vector<BenchCase>& cases, const BenchModel& size) {
  int longest = 0, batch = 1;
  std::int64_t tokens = 0;
  for (const BenchCase& one : cases) {
    longest = std::max(longest, one.longest());
    batch = std::max(batch, one.batch);
    tokens = std::max(tokens, std::int64_t{one.batch} * (one.longest() + 64));
  }
  if (engine.model.max_model_len == 0) engine.model.max_model_len = longest + 1;
  engine.scheduler.max_num_seqs = batch;
  CacheConfig& cache = engine.cache;
  if (engine.device != DeviceKind::cpu || cache.num_gpu_blocks_override ||
      cache.kv_cache_memory_bytes != 0 || cache.gpu_memory_utilization) {
    return;
  }
  constexpr std::int64_t kStates = std::int64_t{256} << 20;  // of recurrent layers, and rounding up
  cache.kv_cache_memory_bytes =
      kStates + static_cast<std::int64_t>(size.kv_elements * 4) * (tokens + longest);
}

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double planned(const Ready& ready, std::string_view purpose) {
  double bytes = 0;
  for (const MemoryUseInfo& use : ready.memory)
    if (use.purpose == purpose) bytes += static_cast<double>(use.planned_bytes);
  return bytes;
}

// Weights and KV cache; weights that stay in mapped files count as the files' size at most.
double planned_bytes(const Ready& ready, const BenchModel& size) {
  return std::max(planned(ready, "weights"), size.file_bytes) + planned(ready, "kv_cache");
}

// Of what a step reads; weights that are rounded while loading are fewer bytes than their file has.
double held_share(const Ready& ready, const EngineConfig& engine, const BenchModel& size) {
  const std::string& rounded = engine.model.quantization;
  if ((rounded != "int8" && rounded != "int4") || size.file_bytes == 0) return 1;
  return (planned(ready, "weights") + planned(ready, "mapped_weights")) / size.file_bytes;
}

void measure(BenchRun& run, BenchReport& report, const BenchFlags& flags) {
  for (BenchLine& line : report.lines) run.seconds(line.what);  // everything once, to warm up
  for (int r = 0; r < flags.repeats; ++r) {
    for (BenchLine& line : report.lines) {
      const auto own = [&] {
        line.rates.push_back(static_cast<double>(line.what.tokens()) / run.seconds(line.what));
      };
      if (r % 2 == 0) own();
      if (!flags.peer.empty()) {
        if (const auto rate = peer_rate(flags.peer, line.what)) line.peer_rates.push_back(*rate);
      }
      if (r % 2 == 1) own();
      fmt::print(stderr, "{} {}/{}: {:.2f} tokens/s{}\n", line.what.name(), r + 1, flags.repeats,
                 line.rates.back(),
                 line.peer_rates.empty() ? "" : fmt::format(", peer {:.2f}", line.peer_rates.back()));
    }
  }
}

BenchReport run(BenchFlags& flags) {
  EngineConfig& engine = flags.engine;
  const auto choice = choose_device(engine.device);
  if (choice.has_error()) throw Failure(choice.error());
  engine.device = choice->kind;
  const ModelConfig config = read_model_config(engine.model.path);
  drop_generation(flags);
  const std::vector<BenchCase> cases = cases_of(flags);
  const bool dummy = engine.model.load_format == LoadFormat::dummy;
  BenchReport report;
  report.model = engine.model.path;
  report.size = bench_model(dummy ? "" : engine.model.path, config);
  complete(engine, cases, report.size);
  if (auto valid = validate(engine); valid.has_error()) throw Failure(valid.error());
  const bool cpu = engine.device == DeviceKind::cpu;
  report.device = cpu ? "cpu" : "cuda";
  report.dtype = name_of(engine.model.dtype.value_or(config.dtype));
  report.threads = cpu ? threads_of_engine(engine, available_cores()) : 1;
  report.instructions = cpu ? name_of(detect_cpu_isa()) : "";
  report.peer = flags.peer;
  for (const BenchCase& one : cases) report.lines.push_back({.what = one, .rates = {}, .peer_rates = {}});
  if (cpu) report.before = probe_machine(report.threads);
  {
    BenchRun bench(engine);
    report.load_seconds = bench.load_seconds();
    report.kv_element_bytes = static_cast<double>(size_of(bench.engine().plan().cache_dtype));
    report.size.step_bytes *= held_share(bench.engine().ready(), engine, report.size);
    measure(bench, report, flags);
    report.resident_bytes = resident_bytes();
    report.planned_bytes = planned_bytes(bench.engine().ready(), report.size);
  }
  if (cpu) report.after = probe_machine(report.threads);
  return report;
}

int write(const BenchReport& report, const std::string& path) {
  if (path != "-") fmt::print("{}", bench_table(report));
  if (path == "-") fmt::print("{}", bench_json(report));
  if (path.empty() || path == "-") return 0;
  std::ofstream file(path);
  file << bench_json(report);
  if (file.flush()) return 0;
  fmt::print(stderr, "quire bench: {} cannot be written\n", path);
  return kExitNotWritten;
}

// What would change no figure, or make one wrong.
void refuse_idle_flags(const CLI::App& app) {
  refuse_of_servers(app, "a benchmark");
  constexpr std::array<std::string_view, 1> kOfBatch{"--max-num-seqs"};
  refuse_given(app, kOfBatch, "on a benchmark, whose -b says how many requests run together");
  constexpr std::array<std::string_view, 1> kDrafts{"Speculative decoding"};
  refuse_given_of(app, kDrafts,
                  "on a benchmark, whose tokens are random: nothing could be guessed");
}

}  // namespace

int bench_main(int argc, const char* const* argv) {
  if (argc > 1 && argv[1] == std::string_view("serve") && !std::filesystem::exists(argv[1])) {
    fmt::print(stderr, "quire bench: times the engine in this process; a server that runs is "
                       "measured by quire-load, which takes vLLM's flags of `bench serve`\n");
    return 2;
  }
  CLI::App app(
      "Speed of prompts and generation through the engine, beside what this machine's memory and "
      "multipliers give at most.",
      "quire bench");
  BenchFlags flags;
  add_flags(app, flags);
  try {
    parse_forgivingly(app, argc, argv);
    if (flags.engine.model.path.empty()) throw CLI::RequiredError("MODEL");
    refuse_idle_flags(app);
    flags.engine.model.path = local_model(flags.engine.model.path);
    if (const auto choice = choose_device(flags.engine.device))
      forget_idle_sizes(app, flags.engine, choice->kind);
    check_engine_flags(app, flags.engine);
    flags.generate_is_asked = app.count("--n-gen") > 0;
    return write(run(flags), flags.json);
  } catch (const CLI::Success& asked_for_help) {
    return app.exit(asked_for_help);
  } catch (const CLI::ParseError& wrong) {
    app.exit(wrong);
  } catch (const std::exception& failure) {
    fmt::print(stderr, "quire bench: {}\n", failure_text(failure));
  }
  return 2;
}

}  // namespace quire
