// What a transfer costs those who run beside it: two engines in this process, one that keeps
// prefills and one that fetches them while its streams go on. No HTTP: each gap is that between the
// ends of two steps in which the streams took a token, and is told apart by what it held:
//
//   alone       nothing but the streams, just before and after what follows
//   transfer    from the request's coming to the end of the last step without it: fetch and copies
//   first step  the step in which the fetched request runs first: one token that reads all of it
//   control     the first step of the same prompt out of the own cache: as many tokens, as many
//   read
//
// Prompts are whole blocks and one token, so both run one token; what is left of the first step
// beside the control is the transfer's.
//
//   kv_gaps_perf [--tokens 1024] [--context 256] [--streams 2] [--at-once 1] [--rounds 20]
//   [--threads 1]
//     [--tcp] [--seed 1]

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "cpu/cpu_backend.h"
#include "engine/core/engine_core.h"

namespace quire {
namespace {

struct Options {
  int tokens = 1024, context = 256, streams = 2, at_once = 1, rounds = 20, threads = 1, seed = 1;
  bool tcp = false;
};

// As tests/e2e/large_cache_model.py: 32 KiB a token, and little to compute.
constexpr const char* kConfig = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 1536,
  "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 8, "num_attention_heads": 8,
  "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5, "max_position_embeddings": 8192,
  "rope_theta": 10000.0, "torch_dtype": "bfloat16", "tie_word_embeddings": true})";
constexpr int kBlockSize = 32, kVocabSize = 1536;
constexpr int kFetchesPerRound = 4, kPlainSteps = 8;

EngineConfig config_of(const Options& options, const std::string& model) {
  EngineConfig config;
  config.model.path = model;
  config.model.load_format = LoadFormat::dummy;
  config.model.max_model_len = 8192;
  config.cache.block_size = kBlockSize;
  config.cache.kv_cache_memory_bytes = std::int64_t{2} << 30;
  config.scheduler.max_num_seqs = 32;
  config.scheduler.max_num_batched_tokens = 2048;
  config.cpu_threads = options.threads;
  config.kv_transfer.buffer_bytes = std::int64_t{768} << 20;
  config.kv_transfer.lease_seconds = 600;
  return config;
}

EngineConfig with_role(EngineConfig config, KvRole role, const std::string& line) {
  config.kv_transfer.role = role;
  if (role == KvRole::prefill) config.kv_transfer.listen = line;
  if (role == KvRole::decode) config.kv_transfer.peers.push_back({line});
  return config;
}

class Engine {
 public:
  explicit Engine(const EngineConfig& config)
      : core(config, EngineId{0},
             {.kind = DeviceKind::cpu,
              .device = make_cpu_device(),
              .ops = make_cpu_ops({.threads = config.cpu_threads})},
             [](std::string_view, double) {}) {}

  RequestId add(std::vector<TokenId> prompt, int max_tokens, std::string params = {}) {
    AddRequest request;
    request.id = RequestId{++last_id_};
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0;
    request.sampling.max_tokens = max_tokens;
    request.sampling.ignore_eos = true;
    request.transfer_params = std::move(params);
    request.arrival = Clock::now();
    const RequestId id = request.id;
    core.add(std::move(request));
    return id;
  }

  EngineCore core;

 private:
  std::uint64_t last_id_ = 0;
};

std::string keep(Engine& engine, const std::vector<TokenId>& prompt) {
  engine.add(prompt, 1, R"({"do_remote_decode": true, "do_remote_prefill": false})");
  std::string params;
  while (engine.core.has_work())
    for (RequestOutput& one : engine.core.step().requests)
      if (!one.transfer_params.empty()) params = std::move(one.transfer_params);
  if (params.empty()) throw std::runtime_error("the buffer is full: fewer tokens");
  return params;
}

struct Gaps {
  std::vector<double> alone, transfer, fetched_first, own_first;  // ms
  std::vector<double> hand_over, own;                             // to the first token, ms
};

double milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

// The streams, and who joins them.
class Decoding {
 public:
  Decoding(Engine& engine, const Options& options) : engine_(engine), options_(options) {}

  void begin(std::mt19937& random) {
    for (int i = 0; i < options_.streams; ++i) {
      std::vector<TokenId> prompt;
      for (int j = 0; j < options_.context; ++j)
        prompt.push_back(static_cast<TokenId>(100 + random() % 1400));
      streams_.push_back(engine_.add(std::move(prompt), 7000));
    }
    for (int i = 0; i < 2 * kPlainSteps; ++i) engine_.core.step();
    latest_ = engine_.core.step().time;
  }
  void end() {
    for (const RequestId stream : streams_) engine_.core.abort(stream);
    while (engine_.core.has_work()) engine_.core.step();
    streams_.clear();
  }

  void go_alone(std::vector<double>& gaps) {
    // Else Linux would stop a real-time process for a twentieth of each second.
    const auto now = Clock::now();
    std::this_thread::sleep_for((now - latest_pause_) / 9);
    latest_pause_ = Clock::now();
    step();  // of what ended before, and the pause
    for (int i = 0; i < kPlainSteps; ++i) gaps.push_back(step().gap);
  }

  struct Seen {
    std::vector<double>&before, &first, &whole;
    int external;  // tokens of each that come from elsewhere
  };
  void join(const std::vector<std::vector<TokenId>>& prompts,
            const std::vector<std::string>& params, const Seen& seen) {
    const auto start = Clock::now();
    std::set<RequestId> waiting;
    for (std::size_t i = 0; i < prompts.size(); ++i)
      waiting.insert(engine_.add(prompts[i], 1, params.empty() ? "" : params[i]));
    while (!waiting.empty()) {
      const Step step = this->step();
      bool joins = false;
      for (const RequestOutput& one : step.output.requests) {
        if (waiting.erase(one.id) == 0) continue;
        joins = true;
        if (one.error) throw std::runtime_error(one.error->detail);
        if (one.num_external_tokens != seen.external || one.num_cached_tokens < options_.tokens)
          throw std::runtime_error(fmt::format("{} tokens were cached, {} came from elsewhere",
                                               one.num_cached_tokens, one.num_external_tokens));
        seen.whole.push_back(milliseconds(one.times.first_token - start));
      }
      (joins ? seen.first : seen.before).push_back(step.gap);
    }
  }

 private:
  struct Step {
    StepOutput output;
    double gap = 0;
  };
  Step step() {
    Step step{.output = engine_.core.step()};
    step.gap = milliseconds(step.output.time - latest_);
    latest_ = step.output.time;
    return step;
  }

  Engine& engine_;
  const Options& options_;
  std::vector<RequestId> streams_;
  Clock::time_point latest_, latest_pause_ = Clock::now();
};

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size()));
  return values[std::min(at, values.size() - 1)];
}

void print(const char* what, const std::vector<double>& values) {
  fmt::print("  {:<34} {:5} {:8.2f} {:8.2f} {:8.2f} {:8.2f}\n", what, values.size(),
             quantile(values, 0.5), quantile(values, 0.9), quantile(values, 0.99),
             quantile(values, 1));
}

void report(const Options& options, const Gaps& gaps) {
  fmt::print("{} tokens, {} at once, over {}; {} streams from {} tokens on, {} threads\n",
             options.tokens, options.at_once, options.tcp ? "TCP" : "memory of both",
             options.streams, options.context, options.threads);
  fmt::print("  {:<34} {:>5} {:>8} {:>8} {:>8} {:>8}\n", "ms", "count", "p50", "p90", "p99",
             "most");
  print("gaps alone", gaps.alone);
  print("gaps in a transfer", gaps.transfer);
  print("gap of the fetched one's first step", gaps.fetched_first);
  print("gap of the control's first step", gaps.own_first);
  print("to the first token, fetched", gaps.hand_over);
  print("to the first token, control", gaps.own);
  const auto p99 = [](const std::vector<double>& values) { return quantile(values, 0.99); };
  std::vector<double> all = gaps.transfer;
  all.insert(all.end(), gaps.fetched_first.begin(), gaps.fetched_first.end());
  fmt::print(
      "p99 of that alone: in a transfer {:.2f}, with the first step {:.2f}; "
      "first steps by the control's, p50 {:.2f}, p99 {:.2f}\n",
      p99(gaps.transfer) / p99(gaps.alone), p99(all) / p99(gaps.alone),
      quantile(gaps.fetched_first, 0.5) / quantile(gaps.own_first, 0.5),
      p99(gaps.fetched_first) / p99(gaps.own_first));
}

int run(const Options& options) {
  log::configure(log::Format::text, log::Level::error);
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("quire-kv-gaps-{}", ::getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << kConfig;
  std::string line = options.tcp ? "127.0.0.1:0" : "unix:" + (folder / "kv.sock").string();
  const EngineConfig config = config_of(options, folder.string());
  Engine prefilling(with_role(config, KvRole::prefill, line));
  if (options.tcp) line = "127.0.0.1";
  Engine engine(with_role(config, KvRole::decode, line));
  Decoding decoding(engine, options);
  std::mt19937 random(static_cast<unsigned>(options.seed));
  Gaps gaps;
  for (int round = 0; round < options.rounds; ++round) {
    std::vector<std::vector<std::vector<TokenId>>> prompts(kFetchesPerRound);
    std::vector<std::vector<std::string>> kept(kFetchesPerRound);
    for (int i = 0; i < kFetchesPerRound; ++i) {
      for (int j = 0; j < options.at_once; ++j) {
        auto& prompt = prompts[i].emplace_back();
        for (int k = 0; k <= options.tokens; ++k)
          prompt.push_back(static_cast<TokenId>(100 + random() % 1400));
        kept[i].push_back(keep(prefilling, prompt));
      }
    }
    decoding.begin(random);
    std::vector<double> none;
    for (int i = 0; i < kFetchesPerRound; ++i) {
      decoding.go_alone(gaps.alone);
      decoding.join(prompts[i], kept[i],
                    {gaps.transfer, gaps.fetched_first, gaps.hand_over, options.tokens});
      decoding.go_alone(gaps.alone);
      decoding.join(prompts[i], {}, {none, gaps.own_first, gaps.own, 0});
    }
    decoding.end();
  }
  report(options, gaps);
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  quire::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--tcp") {
      options.tcp = true;
      continue;
    }
    if (++i == argc) return 2;
    int* const value = name == "--tokens"    ? &options.tokens
                       : name == "--context" ? &options.context
                       : name == "--streams" ? &options.streams
                       : name == "--at-once" ? &options.at_once
                       : name == "--rounds"  ? &options.rounds
                       : name == "--threads" ? &options.threads
                       : name == "--seed"    ? &options.seed
                                             : nullptr;
    if (value == nullptr) return 2;
    *value = std::atoi(argv[i]);
  }
  return quire::run(options);
}
