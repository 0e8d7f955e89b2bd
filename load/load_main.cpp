// quire-load: puts load on an OpenAI-compatible server and says what its clients saw.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/async.h"
#include "base/error.h"
#include "base/flag_words.h"
#include "load/compare.h"
#include "load/html.h"
#include "load/options.h"
#include "load/report.h"
#include "load/run.h"
#include "load/sweep.h"

namespace {

using namespace quire;
using namespace quire::load;

void print_progress(const Progress& p) {
  fmt::print(stderr, "{}{:5.0f} s  {} sent, {} ended, {} failed, {} output tokens{}",
             isatty(2) ? "\r" : "", p.seconds, p.sent, p.ended, p.failed, p.output_tokens,
             isatty(2) ? "  " : "\n");
  std::fflush(stderr);
}

struct NotWritten : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  if (!out.flush()) throw NotWritten("cannot write " + path);
}

void write_records(const std::string& path, const std::vector<Record>& records) {
  std::string text =
      "due\tsent\tfirst_token\tend\tturn\toutcome\tstatus\tprompt_tokens\toutput_tokens\t"
      "finish_reason\terror\n";
  for (const Record& r : records) {
    text += fmt::format("{:.6f}\t{:.6f}\t{:.6f}\t{:.6f}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", r.due,
                        r.sent, r.first_token, r.end, r.turn, name_of(r.outcome), r.status,
                        r.prompt_tokens, r.output_tokens, r.finish_reason, r.error);
  }
  write_file(path, text);
}

constexpr int kExitInterrupted = 130;  // as shells have it for Ctrl-C
constexpr int kExitNotWritten = 7;     // as quire's commands have it

// The servers that take one load, and all that was seen of them.
struct Side {
  std::vector<std::string> urls;
  std::string model = {};            // as resolved
  std::vector<Record> records = {};  // of all its runs
  double cpu_seconds = 0;
  double begin = 0;          // of the next run, after those before
  bool interrupted = false;  // its latest run

  std::string name() const { return urls.size() == 1 ? urls[0] : urls[0] + " and others"; }
};

// The seed differs from run to run: what one run sent is in the server's caches.
awaitable<void> load_all(const Options& o, Side& side, int repeat, RunResult& result) {
  auto targets = targets_of(o, side.urls);
  WorkloadOptions options = o.workload;
  if (options.model.empty()) {
    options.model = co_await first_model(targets[0], std::chrono::seconds(o.patience));
  }
  side.model = options.model;
  RunOptions run_options = o.run;
  run_options.seed = options.seed = o.run.seed + static_cast<std::uint64_t>(repeat);
  const Workload workload(options);
  const auto on_progress = [&o](const Progress& p) {
    if (!o.quiet) print_progress(p);
  };
  result = co_await run_load(std::move(targets), workload, run_options, on_progress);
  if (!o.quiet && isatty(2)) fmt::print(stderr, "\n");
}

Report run_once(const Options& o, Side& side, int repeat) {
  RunResult result;
  run(1, [&](asio::any_io_executor) { return load_all(o, side, repeat, result); });
  Report report = summarize(result.records, result.cpu_seconds, level_of(o));
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
  side.interrupted = result.interrupted;
  return report;
}

// In alternation, each side first as often as the other.
std::vector<PairedRun> run_pairs(const Options& o, Side& a, Side& b) {
  std::vector<PairedRun> pairs;
  for (int i = 0; i < o.repeats; ++i) {
    PairedRun pair;
    if (i % 2 == 0) pair.a = run_once(o, a, i);
    if (!a.interrupted) pair.b = run_once(o, b, i);
    if (i % 2 != 0 && !b.interrupted) pair.a = run_once(o, a, i);
    if (a.interrupted || b.interrupted) break;
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

void write_json(const Options& o, const std::string& json) {
  if (o.json_file == "-") fmt::print("{}\n", json);
  if (!o.json_file.empty() && o.json_file != "-") write_file(o.json_file, json + "\n");
}

bool all_answered(const Report& report) { return report.failed == 0 && report.ok > 0; }

int run_sweep(Options o) {
  Side side{.urls = o.urls};
  std::vector<SweepStep> steps;
  const int most = o.run.concurrency;
  for (int at_a_time = 1; at_a_time <= most && !is_over(steps) && !side.interrupted;
       at_a_time *= 2) {
    o.run.concurrency = at_a_time;
    steps.push_back({at_a_time, run_once(o, side, static_cast<int>(steps.size()))});
  }
  if (o.json_file != "-") fmt::print("{}", sweep_table(steps));
  write_json(o, sweep_json(steps));
  if (!o.records_file.empty()) write_records(o.records_file, side.records);
  if (!o.html_file.empty()) {
    const Report all = summarize(side.records, side.cpu_seconds, level_of(o));
    write_file(o.html_file, html_report({{side.name(), all, side.records}}, settings_of(o)));
  }
  const bool ok = std::ranges::all_of(steps, all_answered, &SweepStep::report);
  return side.interrupted ? kExitInterrupted : ok ? 0 : 1;
}

int run_and_report(const Options& o) {
  std::vector<Side> sides{{.urls = o.urls}};
  if (!o.other_url.empty()) sides.push_back({.urls = {o.other_url}});
  std::vector<PairedRun> pairs;
  if (sides.size() == 1) {
    run_once(o, sides[0], 0);
  } else {
    pairs = run_pairs(o, sides[0], sides[1]);
  }
  std::vector<Report> reports;
  for (const Side& side : sides) {
    reports.push_back(summarize(side.records, side.cpu_seconds, level_of(o)));
  }
  std::string json;
  std::vector<HtmlRun> html;
  for (std::size_t i = 0; i < sides.size(); ++i) {
    if (o.json_file != "-") {
      fmt::print("{}{}", sides.size() > 1 ? sides[i].name() + "\n" : "", reports[i].table());
    }
    auto settings = settings_of(o);
    settings["url"] = fmt::format("{}", fmt::join(sides[i].urls, " "));
    settings["model"] = sides[i].model;
    json += (json.empty() ? "" : ",") + reports[i].json(settings);
    html.push_back({sides[i].name(), reports[i], sides[i].records});
  }
  if (!pairs.empty()) {
    if (o.json_file != "-") fmt::print("{}", paired_table(pairs));
    json = fmt::format("{{\"runs\":[{}],\"paired\":{}}}", json, paired_json(pairs));
  }
  write_json(o, json);
  if (!o.html_file.empty()) write_file(o.html_file, html_report(html, settings_of(o)));
  if (!o.records_file.empty()) write_records(o.records_file, sides[0].records);
  if (std::ranges::any_of(sides, &Side::interrupted)) return kExitInterrupted;
  return std::ranges::all_of(reports, all_answered) ? 0 : 1;
}

// CLI11 takes any word as a flag's value, the next flag too, and for --flag= the next word.
void refuse_missing_values(const CLI::App& app, int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const MissingValue missing = missing_value(words, [&](std::string_view name) {
    const CLI::Option* option = app.get_option_no_throw(std::string(name));
    if (option == nullptr) return FlagWord::none;
    return option->get_items_expected_max() == 0 ? FlagWord::alone : FlagWord::with_value;
  });
  for (const std::string& word : words)
    if (word.starts_with("--") && word.find('=') == word.size() - 1)
      throw CLI::ValidationError(std::string(flag_name(word)), "needs a value behind =");
  if (missing.flag.empty()) return;
  throw CLI::ValidationError(
      missing.flag,
      "needs a value" + (missing.before.empty() ? std::string() : " before " + missing.before));
}

}  // namespace

// vLLM's `bench serve` is this program: its two words say nothing more.
int main(int argc, char** argv) {
  if (argc > 2 && argv[1] == std::string_view("bench") && argv[2] == std::string_view("serve")) {
    argv[2] = argv[0];
    argc -= 2;
    argv += 2;
  }
  Options options;
  CLI::App app("Puts load on an OpenAI-compatible server; exit code 1 when a request failed.");
  add_flags(app, options);
  int exit_code = 2;
  try {
    refuse_missing_values(app, argc, argv);
    app.parse(argc, argv);
    settle(app, options);
    exit_code = options.sweep ? run_sweep(options) : run_and_report(options);
  } catch (const CLI::ParseError& end) {
    exit_code = app.exit(end);
  } catch (const NotWritten& failure) {
    fmt::print(stderr, "quire-load: {}\n", failure.what());
    return kExitNotWritten;
  } catch (const std::exception& error) {
    fmt::print(stderr, "quire-load: {}\n", error.what());
  }
  // What was printed has to have arrived (a disk may be full).
  const bool arrived = std::cout.flush() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (arrived || exit_code > 1) return exit_code;
  fmt::print(stderr, "quire-load: cannot write the report to standard output\n");
  return kExitNotWritten;
}
