// quire-load: puts load on an OpenAI-compatible server and says what its clients saw.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdio>
#include <fstream>

#include "base/async.h"
#include "base/error.h"
#include "load/report.h"
#include "load/run.h"

namespace {

using namespace quire;
using namespace quire::load;

struct Options {
  std::string url = "http://127.0.0.1:8000";
  std::string api_key;
  WorkloadOptions workload;
  RunOptions run;
  double slo_ttft_ms = 0, slo_itl_ms = 0;
  int patience = 0;
  std::string json_file;
  std::string records_file;
  bool quiet = false;
};

void add_flags(CLI::App& app, Options& o) {
  app.add_option("--url", o.url, "Server, http only")->capture_default_str();
  app.add_option("--model", o.workload.model,
                 "Model name (default: the first that /v1/models lists)");
  app.add_option("--api-key", o.api_key, "Bearer key");
  auto* concurrency = app.add_option("-c,--concurrency", o.run.concurrency,
                                     "Requests at a time; with --rate the most");
  concurrency->check(CLI::Range(1, 100'000))->capture_default_str();
  app.add_option("--rate", o.run.rate, "Poisson arrivals a second instead of a closed loop")
      ->check(CLI::PositiveNumber);
  app.add_option("-n,--requests", o.run.requests, "Stop after so many (0: by --duration)")
      ->capture_default_str();
  app.add_option("-d,--duration", o.run.seconds, "Send nothing new after so many seconds");
  app.add_option("--warmup", o.run.warmup, "Requests sent first and not counted")
      ->capture_default_str();
  app.add_option("--prompts", o.workload.prompts,
                 "JSONL with \"messages\" (or \"prompt\") and maybe \"max_tokens\"");
  app.add_option("--input-words", o.workload.input_words, "Synthetic prompt length")
      ->capture_default_str();
  app.add_option("--shared-prefix-words", o.workload.shared_prefix_words,
                 "Words all prompts begin with")
      ->capture_default_str();
  app.add_option("--output-tokens", o.workload.output_tokens, "max_tokens")->capture_default_str();
  app.add_flag("--ignore-eos", o.workload.ignore_eos, "Generate all of max_tokens");
  app.add_flag("--completions", o.workload.completions, "POST /v1/completions instead of chat");
  app.add_option("--temperature", o.workload.temperature, "Sampling temperature")
      ->capture_default_str();
  app.add_option("--seed", o.run.seed, "For prompts and arrivals")->capture_default_str();
  app.add_option("--slo-ttft-ms", o.slo_ttft_ms, "Service level for goodput: time to first token");
  app.add_option("--slo-itl-ms", o.slo_itl_ms, "Service level for goodput: p99 between chunks");
  app.add_option("--wait-ready", o.patience, "Wait up to so many seconds for the server")
      ->capture_default_str();
  app.add_option("--json", o.json_file, "Write the report as JSON here (- for standard output)");
  app.add_option("--records", o.records_file, "Write a line per request here, tab separated");
  app.add_flag("-q,--quiet", o.quiet, "No progress line");
}

void print_progress(const Progress& p) {
  fmt::print(stderr, "{}{:5.0f} s  {} sent, {} ended, {} failed, {} output tokens{}",
             isatty(2) ? "\r" : "", p.seconds, p.sent, p.ended, p.failed, p.output_tokens,
             isatty(2) ? "  " : "\n");
  std::fflush(stderr);
}

void write_records(const std::string& path, const std::vector<Record>& records) {
  std::ofstream out(path);
  out << "due\tsent\tfirst_token\tend\toutcome\tstatus\tprompt_tokens\toutput_tokens\tfinish_"
         "reason\terror\n";
  for (const Record& r : records) {
    out << fmt::format("{:.6f}\t{:.6f}\t{:.6f}\t{:.6f}\t{}\t{}\t{}\t{}\t{}\t{}\n", r.due, r.sent,
                       r.first_token, r.end, name_of(r.outcome), r.status, r.prompt_tokens,
                       r.output_tokens, r.finish_reason, r.error);
  }
  if (!out) throw Failure(ErrorCode::internal, "cannot write " + path);
}

awaitable<void> load_all(Options& o, RunResult& result) {
  Target target = Target::parse(o.url);
  target.api_key = o.api_key;
  if (o.workload.model.empty())
    o.workload.model = co_await first_model(target, std::chrono::seconds(o.patience));
  o.workload.seed = o.run.seed;
  const Workload workload(o.workload);
  const auto on_progress = [&o](const Progress& p) {
    if (!o.quiet) print_progress(p);
  };
  result = co_await run_load(target, workload, o.run, on_progress);
  if (!o.quiet && isatty(2)) fmt::print(stderr, "\n");
}

int report(const Options& o, const RunResult& result) {
  std::optional<ServiceLevel> level;
  if (o.slo_ttft_ms > 0 || o.slo_itl_ms > 0) {
    level = ServiceLevel{o.slo_ttft_ms > 0 ? o.slo_ttft_ms / 1e3 : 1e9,
                         o.slo_itl_ms > 0 ? o.slo_itl_ms / 1e3 : 1e9};
  }
  const Report report = summarize(result.records, result.cpu_seconds, level);
  if (o.json_file != "-") fmt::print("{}", report.table());
  if (!o.json_file.empty()) {
    const std::string json =
        report.json({{"url", o.url},
                     {"model", o.workload.model},
                     {"concurrency", std::to_string(o.run.concurrency)},
                     {"rate", std::to_string(o.run.rate)},
                     {"seed", std::to_string(o.run.seed)},
                     {"endpoint", o.workload.completions ? "completions" : "chat"}});
    if (o.json_file == "-") {
      fmt::print("{}\n", json);
    } else {
      std::ofstream out(o.json_file);
      out << json << "\n";
      if (!out) throw Failure(ErrorCode::internal, "cannot write " + o.json_file);
    }
  }
  if (!o.records_file.empty()) write_records(o.records_file, result.records);
  return report.failed == 0 && report.ok > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Puts load on an OpenAI-compatible server; exit code 1 when a request failed.");
  add_flags(app, options);
  CLI11_PARSE(app, argc, argv);
  try {
    if (options.run.requests == 0 && options.run.seconds == 0) {
      throw Failure(ErrorCode::invalid_argument, "--requests 0 needs a --duration");
    }
    RunResult result;
    run(1, [&](asio::any_io_executor) { return load_all(options, result); });
    return report(options, result);
  } catch (const std::exception& error) {
    fmt::print(stderr, "quire-load: {}\n", error.what());
    return 2;
  }
}
