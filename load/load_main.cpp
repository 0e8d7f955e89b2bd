// quire-load: puts load on an OpenAI-compatible server and says what its clients saw.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>

#include "base/async.h"
#include "base/error.h"
#include "load/compare.h"
#include "load/html.h"
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
  std::string other_url;
  int repeats = 3;
  std::string json_file, html_file;
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
  app.add_option("--rate", o.run.rate, "Arrivals a second instead of a closed loop")
      ->check(CLI::PositiveNumber);
  app.add_option("--arrivals", o.run.arrivals, "With --rate: poisson, constant or gamma (poisson)")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, ArrivalKind>{{"poisson", ArrivalKind::poisson},
                                             {"constant", ArrivalKind::constant},
                                             {"gamma", ArrivalKind::gamma}}))
      ->type_name("NAME");
  app.add_option("--burstiness", o.run.burstiness,
                 "Of gamma arrivals: 1 is poisson, below in bursts, above more evenly")
      ->check(CLI::Range(0.01, 1000.0))
      ->capture_default_str();
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
  app.add_option("--length-spread", o.workload.length_spread,
                 "Synthetic lengths are log-normal around the two above; conversations have about 1; "
                 "0: all the same")
      ->check(CLI::Range(0.0, 3.0))
      ->capture_default_str();
  app.add_flag("--ignore-eos", o.workload.ignore_eos, "Generate all of max_tokens");
  app.add_flag("--completions", o.workload.completions, "POST /v1/completions instead of chat");
  app.add_option("--temperature", o.workload.temperature, "Sampling temperature")
      ->capture_default_str();
  app.add_option("--seed", o.run.seed, "For prompts and arrivals")->capture_default_str();
  app.add_option("--slo-ttft-ms", o.slo_ttft_ms, "Service level for goodput: time to first token");
  app.add_option("--slo-itl-ms", o.slo_itl_ms, "Service level for goodput: p99 between chunks");
  app.add_option("--wait-ready", o.patience, "Wait up to so many seconds for the server")
      ->capture_default_str();
  app.add_option("--compare-url", o.other_url,
                 "A second server: both get the same load in turn, --repeats times; ratios are of "
                 "the first to the second");
  app.add_option("--repeats", o.repeats, "Pairs of runs with --compare-url")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--html", o.html_file, "Write the report with plots here, one file for a browser");
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

struct Side {
  std::string url;
  std::string model = {};  // as resolved
  std::vector<Record> records;  // of all its runs
  double cpu_seconds = 0;
  double begin = 0;  // of the next run, after those before
};

// The seed differs from pair to pair: what one run sent is in the server's caches.
awaitable<void> load_all(const Options& o, Side& side, int repeat, RunResult& result) {
  Target target = Target::parse(side.url);
  target.api_key = o.api_key;
  WorkloadOptions options = o.workload;
  if (options.model.empty())
    options.model = co_await first_model(target, std::chrono::seconds(o.patience));
  side.model = options.model;
  RunOptions run_options = o.run;
  run_options.seed = options.seed = o.run.seed + static_cast<std::uint64_t>(repeat);
  const Workload workload(options);
  const auto on_progress = [&o](const Progress& p) {
    if (!o.quiet) print_progress(p);
  };
  result = co_await run_load(target, workload, run_options, on_progress);
  if (!o.quiet && isatty(2)) fmt::print(stderr, "\n");
}

Report run_once(const Options& o, Side& side, int repeat, const std::optional<ServiceLevel>& level) {
  RunResult result;
  run(1, [&](asio::any_io_executor) { return load_all(o, side, repeat, result); });
  const Report report = summarize(result.records, result.cpu_seconds, level);
  double end = 0;
  for (Record& r : result.records) {
    end = std::max(end, r.end);
    r.due += side.begin;
    r.sent += side.begin;
    r.first_token += r.first_token > 0 ? side.begin : 0;
    r.end += side.begin;
    side.records.push_back(std::move(r));
  }
  side.begin += end;
  side.cpu_seconds += result.cpu_seconds;
  return report;
}

std::optional<ServiceLevel> level_of(const Options& o) {
  if (o.slo_ttft_ms <= 0 && o.slo_itl_ms <= 0) return {};
  return ServiceLevel{o.slo_ttft_ms > 0 ? o.slo_ttft_ms / 1e3 : 1e9,
                      o.slo_itl_ms > 0 ? o.slo_itl_ms / 1e3 : 1e9};
}

std::map<std::string, std::string> settings_of(const Options& o) {
  constexpr const char* kArrivals[] = {"poisson", "constant", "gamma"};
  std::map<std::string, std::string> settings{
      {"url", o.url},
      {"concurrency", std::to_string(o.run.concurrency)},
      {"rate", std::to_string(o.run.rate)},
      {"seed", std::to_string(o.run.seed)},
      {"length_spread", std::to_string(o.workload.length_spread)},
      {"endpoint", o.workload.completions ? "completions" : "chat"}};
  if (o.run.rate > 0) settings["arrivals"] = kArrivals[static_cast<int>(o.run.arrivals)];
  if (!o.other_url.empty()) settings["compare_url"] = o.other_url;
  return settings;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  if (!out.flush()) throw Failure(ErrorCode::internal, "cannot write " + path);
}

int run_and_report(const Options& o) {
  const auto level = level_of(o);
  std::vector<Side> sides{{.url = o.url, .records = {}}};
  if (!o.other_url.empty()) sides.push_back({.url = o.other_url, .records = {}});
  std::vector<PairedRun> pairs;
  for (int i = 0; i < (sides.size() > 1 ? o.repeats : 1); ++i) {
    if (sides.size() == 1) {
      run_once(o, sides[0], i, level);
    } else if (i % 2 == 0) {
      Report a = run_once(o, sides[0], i, level);
      pairs.push_back({std::move(a), run_once(o, sides[1], i, level)});
    } else {
      Report b = run_once(o, sides[1], i, level);
      pairs.push_back({run_once(o, sides[0], i, level), std::move(b)});
    }
  }
  std::vector<Report> reports;
  std::vector<HtmlRun> html;
  for (const Side& side : sides)
    reports.push_back(summarize(side.records, side.cpu_seconds, level));
  std::string json;
  bool ok = true;
  for (std::size_t i = 0; i < sides.size(); ++i) {
    if (o.json_file != "-") {
      fmt::print("{}{}", sides.size() > 1 ? sides[i].url + "\n" : "", reports[i].table());
    }
    auto settings = settings_of(o);
    settings["url"] = sides[i].url;
    settings["model"] = sides[i].model;
    json += (json.empty() ? "" : ",") + reports[i].json(settings);
    html.push_back({sides[i].url, reports[i], sides[i].records});
    ok = ok && reports[i].failed == 0 && reports[i].ok > 0;
  }
  if (!pairs.empty()) {
    if (o.json_file != "-") fmt::print("{}", paired_table(pairs));
    json = fmt::format("{{\"runs\":[{}],\"paired\":{}}}", json, paired_json(pairs));
  }
  if (o.json_file == "-") fmt::print("{}\n", json);
  if (!o.json_file.empty() && o.json_file != "-") write_file(o.json_file, json + "\n");
  if (!o.html_file.empty()) write_file(o.html_file, html_report(html, settings_of(o)));
  if (!o.records_file.empty()) write_records(o.records_file, sides[0].records);
  return ok ? 0 : 1;
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
    return run_and_report(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "quire-load: {}\n", error.what());
    return 2;
  }
}
