#include "load/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

#include "base/error.h"

namespace quire::load {
namespace {

constexpr double kLongestWait = 7 * 24 * 3600;  // seconds

void add_server_flags(CLI::App& app, Options& o) {
  app.add_option("--url,--base-url", o.urls,
                 "Server: http://, https:// or unix:/path; several take conversations in turn")
      ->capture_default_str();
  app.add_option("--model", o.workload.model,
                 "Model name (default: the first that /v1/models lists)");
  app.add_option("--api-key", o.api_key, "Bearer key");
  app.add_flag("--insecure", o.insecure, "Take any certificate");
  app.add_option("--wait-ready,--ready-check-timeout-sec", o.patience,
                 "Wait up to so many seconds for the server")
      ->capture_default_str();
  app.add_option("--silence-timeout", o.silence,
                 "A request has failed when nothing came for so many seconds")
      ->check(CLI::Range(0.1, kLongestWait))
      ->capture_default_str();
  app.add_flag("--completions", o.workload.completions, "POST /v1/completions instead of chat");
}

double number_in(const std::string& text) {
  double value = 0;
  return CLI::detail::lexical_cast(text, value) ? value : std::nan("");
}

CLI::Validator above_0() {
  return {[](std::string& text) {
            return number_in(text) > 0 ? "" : "must be a number above 0, is " + text;
          },
          ""};
}

CLI::Validator at_least_0() {
  return {[](std::string& text) {
            return number_in(text) >= 0 ? "" : "must be a number from 0 on, is " + text;
          },
          ""};
}

// vLLM's word for no rate at all, which is 0 within.
CLI::Validator rate_or_inf() {
  return {[](std::string& rate) {
            const bool fits = rate == "inf" || number_in(rate) > 0;
            const std::string given = std::exchange(rate, rate == "inf" ? "0" : rate);
            return fits ? "" : "must be a number above 0, or inf for all at once, is " + given;
          },
          ""};
}

void add_timing_flags(CLI::App& app, Options& o) {
  ArrivalOptions& arrivals = o.run.arrivals;
  app.add_option("-c,--concurrency,--max-concurrency", o.run.concurrency,
                 "Conversations at a time; in an open loop and a sweep the most")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--rate,--request-rate", arrivals.rate,
                 "Arrivals a second instead of a closed loop; inf: all at once, as many as "
                 "--max-concurrency lets")
      ->transform(rate_or_inf());
  CLI::CheckedTransformer kinds(
      std::map<std::string, ArrivalKind>{{"poisson", ArrivalKind::poisson},
                                         {"constant", ArrivalKind::constant},
                                         {"gamma", ArrivalKind::gamma}});
  app.add_option("--arrivals", arrivals.kind, "With --rate: poisson, constant or gamma (poisson)")
      ->transform(kinds.description(""))
      ->type_name("NAME");
  app.add_option("--burstiness", arrivals.burstiness,
                 "Of gamma arrivals: 1 is poisson, below in bursts, above more evenly")
      ->check(CLI::Range(0.01, 1000.0))
      ->capture_default_str();
  app.add_option("--ramp-to", arrivals.ramp_to,
                 "With --rate and --duration: the rate at the end, reached in a straight line")
      ->check(above_0());
  app.add_flag("--sweep", o.sweep,
               "1, 2, 4, … conversations at a time until the server gives no more tokens a second");
  app.add_option("-n,--requests,--num-prompts", o.run.requests,
                 "Stop after so many conversations (0: by --duration); of a trace all")
      ->check(at_least_0())
      ->capture_default_str();
  app.add_option("-d,--duration", o.run.seconds, "Begin no conversation after so many seconds")
      ->check(at_least_0());
  app.add_option("--warmup,--num-warmups", o.run.warmup, "Conversations sent first and not counted")
      ->check(at_least_0())
      ->capture_default_str();
}

void add_prompt_flags(CLI::App& app, Options& o) {
  WorkloadOptions& w = o.workload;
  app.add_option("--prompts,--dataset-path", w.prompts,
                 "JSONL with \"messages\" (\"prompt\" with --completions) and maybe "
                 "\"max_tokens\", or ShareGPT's JSON");
  app.add_option(
      "--trace", w.trace,
      "Send recorded traffic at its own times: Mooncake's JSONL, BurstGPT's or Azure's CSV");
  app.add_option("--trace-speed", o.run.trace_speed, "2: twice as fast as it was recorded")
      ->check(above_0())
      ->capture_default_str();
  app.add_option("--tokenizer", w.tokenizer,
                 "Model folder or GGUF file: synthetic lengths are its tokens, not words");
  app.add_option("--input-length,--input-words,--random-input-len", w.input_length,
                 "Synthetic prompt length in words, or tokens with --tokenizer")
      ->check(CLI::Range(1, 16 << 20))
      ->capture_default_str();
  app.add_option("--shared-prefix-length,--shared-prefix-words,--random-prefix-len",
                 w.shared_prefix_length, "Text that all conversations begin with, in the same unit")
      ->check(CLI::Range(0, 16 << 20))
      ->capture_default_str();
  app.add_option("--output-tokens,--random-output-len,--sharegpt-output-len,--custom-output-len",
                 w.output_tokens, "max_tokens")
      ->check(CLI::Range(1, 16 << 20))
      ->capture_default_str();
  app.add_option(
         "--length-spread", w.length_spread,
         "Synthetic lengths are log-normal around the two above; conversations have about 1; "
         "0: all the same")
      ->check(CLI::Range(0.0, 3.0))
      ->capture_default_str();
  app.add_option("--range-ratio,--random-range-ratio", w.range_ratio,
                 "Synthetic lengths are even between 1 - this and 1 + this times the two above")
      ->check(CLI::Range(0.0, 0.999))
      ->capture_default_str();
  app.add_option("--turns", w.turns,
                 "Questions of a conversation; the server's answers stand between them")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--think-time", o.run.think_seconds, "Seconds between an answer and the next turn")
      ->check(CLI::Range(0.0, kLongestWait))
      ->capture_default_str();
  app.add_flag("--ignore-eos", w.ignore_eos, "Generate all of max_tokens");
  app.add_option("--temperature", w.temperature, "Sampling temperature")->capture_default_str();
  app.add_option("--seed", o.run.seed, "For prompts and arrivals")->capture_default_str();
}

void add_report_flags(CLI::App& app, Options& o) {
  app.add_option("--slo-ttft-ms", o.slo_ttft_ms, "Service level for goodput: time to first token");
  app.add_option("--slo-itl-ms", o.slo_itl_ms, "Service level for goodput: p99 between chunks");
  app.add_option("--slo-tpot-ms", o.slo_tpot_ms,
                 "Service level for goodput: time per output token");
  app.add_option("--slo-e2e-ms", o.slo_e2e_ms, "Service level for goodput: the whole request");
  app.add_option("--compare-url", o.other_url,
                 "A second server: both get the same load in turn, --repeats times; ratios are of "
                 "the first to the second");
  app.add_option("--repeats", o.repeats, "Pairs of runs with --compare-url")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--html", o.html_file, "Write the report with plots here, one file for a browser");
  app.add_option("--json", o.json_file, "Write the report as JSON here (- for standard output)");
  app.add_option("--records", o.records_file, "Write a line per request here, tab separated");
  app.add_flag("-q,--quiet,--disable-tqdm", o.quiet, "No progress line");
}

void refuse_if(bool wrong, const char* what) {
  if (wrong) throw Failure(ErrorCode::invalid_argument, what);
}

}  // namespace

void add_flags(CLI::App& app, Options& options) {
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_server_flags(app, options);
  app.get_option("--url")->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_timing_flags(app, options);
  add_prompt_flags(app, options);
  add_report_flags(app, options);
  add_bench_serve_flags(app, options.bench_serve);
}

void settle(const CLI::App& app, Options& o) {
  const auto given = [&](const char* flag) { return app.count(flag) > 0; };
  refuse_if((given("--host") || given("--port")) && given("--url"),
            "--host and --port stand for a --url: not both");
  apply(o.bench_serve, o);
  if (given("--burstiness") && !given("--arrivals")) o.run.arrivals.kind = ArrivalKind::gamma;
  const bool is_trace = !o.workload.trace.empty();
  const bool is_open = o.run.arrivals.rate > 0 || is_trace;
  if (given("--rate") && !is_open && !given("--max-concurrency")) {
    refuse_if(o.run.requests == 0, "--rate inf needs --num-prompts or --max-concurrency");
    o.run.concurrency = static_cast<int>(std::min<std::int64_t>(o.run.requests, 100'000));
  }
  if (is_trace && !given("--requests")) o.run.requests = 0;
  if (is_trace && !given("--concurrency")) o.run.concurrency = 10'000;
  refuse_if(o.run.requests == 0 && o.run.seconds == 0 && !is_trace,
            "--requests 0 needs a --duration");
  refuse_if(is_trace && given("--rate"), "a --trace has times of its own: without --rate");
  refuse_if(!is_trace && given("--trace-speed"), "--trace-speed needs a --trace");
  refuse_if(
      !given("--rate") && (given("--arrivals") || given("--burstiness") || given("--ramp-to")),
      "--arrivals, --burstiness and --ramp-to need a --rate");
  refuse_if(given("--burstiness") && o.run.arrivals.kind != ArrivalKind::gamma,
            "--burstiness needs --arrivals gamma");
  refuse_if(given("--ramp-to") && o.run.seconds == 0, "--ramp-to needs a --duration");
  refuse_if(given("--think-time") && o.workload.turns == 1, "--think-time needs --turns");
  refuse_if(o.sweep && (is_open || given("--compare-url")),
            "--sweep is a closed loop on one server: without --rate, --trace and --compare-url");
  const bool is_synthetic = o.workload.prompts.empty() && !is_trace;
  refuse_if(
      !is_synthetic && (given("--input-length") || given("--shared-prefix-length") ||
                        given("--length-spread") || given("--range-ratio")),
      "--input-length, --shared-prefix-length, --length-spread and --range-ratio are of synthetic "
      "prompts: without --prompts and --trace");
  refuse_if(given("--length-spread") && given("--range-ratio"),
            "--length-spread and --range-ratio: only one of them");
  refuse_if(is_trace && given("--output-tokens"),
            "a --trace has lengths of its own: without --output-tokens");
  // Scripts for vLLM's give it always: there it also counts what it was answered.
  refuse_if(!o.workload.prompts.empty() && given("--tokenizer") && !given("--dataset-name"),
            "--prompts need no --tokenizer");
  refuse_if(given("--repeats") && !given("--compare-url"), "--repeats needs a --compare-url");
  for (const std::string& path : {o.html_file, o.records_file, o.json_file}) {
    if (path.empty() || path == "-") continue;
    if (!std::ofstream(path, std::ios::app))
      throw Failure(ErrorCode::invalid_argument, "cannot write " + path);
  }
  if (o.sweep && !given("--concurrency")) o.run.concurrency = 256;
  o.run.arrivals.ramp_seconds = o.run.seconds;
}

std::optional<ServiceLevel> level_of(const Options& o) {
  const double levels[] = {o.slo_ttft_ms, o.slo_itl_ms, o.slo_tpot_ms, o.slo_e2e_ms};
  if (std::ranges::all_of(levels, [](double ms) { return ms <= 0; })) return {};
  const auto seconds = [](double ms) { return ms > 0 ? ms / 1e3 : kNoLevel; };
  return ServiceLevel{seconds(levels[0]), seconds(levels[1]), seconds(levels[2]),
                      seconds(levels[3])};
}

std::vector<Target> targets_of(const Options& o, const std::vector<std::string>& urls) {
  std::vector<Target> targets;
  for (const std::string& url : urls) {
    Target& target = targets.emplace_back(Target::parse(url));
    target.api_key = o.api_key;
    target.check_certificate = !o.insecure;
    target.most_silence = std::chrono::milliseconds(static_cast<std::int64_t>(o.silence * 1e3));
  }
  return targets;
}

std::map<std::string, std::string> settings_of(const Options& o) {
  constexpr const char* kArrivals[] = {"poisson", "constant", "gamma"};
  const ArrivalOptions& arrivals = o.run.arrivals;
  const WorkloadOptions& w = o.workload;
  std::map<std::string, std::string> settings{{"url", fmt::format("{}", fmt::join(o.urls, " "))},
                                              {"endpoint", w.completions ? "completions" : "chat"},
                                              {"concurrency", fmt::format("{}", o.run.concurrency)},
                                              {"requests", fmt::format("{}", o.run.requests)},
                                              {"warmup", fmt::format("{}", o.run.warmup)},
                                              {"seed", fmt::format("{}", o.run.seed)},
                                              {"turns", fmt::format("{}", w.turns)},
                                              {"temperature", fmt::format("{}", w.temperature)}};
  const auto note = [&](const char* name, bool has, const auto& value) {
    if (has) settings[name] = fmt::format("{}", value);
  };
  const bool is_synthetic = w.prompts.empty() && w.trace.empty();
  note("duration", o.run.seconds > 0, o.run.seconds);
  note("rate", arrivals.rate > 0, arrivals.rate);
  note("arrivals", arrivals.rate > 0, kArrivals[static_cast<int>(arrivals.kind)]);
  note("burstiness", arrivals.kind == ArrivalKind::gamma, arrivals.burstiness);
  note("ramp_to", arrivals.ramp_to > 0, arrivals.ramp_to);
  note("think_seconds", o.run.think_seconds > 0, o.run.think_seconds);
  note("prompts", !w.prompts.empty(), w.prompts.string());
  note("trace", !w.trace.empty(), w.trace.string());
  note("trace_speed", !w.trace.empty(), o.run.trace_speed);
  note("length_unit", is_synthetic, w.tokenizer.empty() ? "words" : "tokens");
  note("input_length", is_synthetic, w.input_length);
  note("shared_prefix_length", is_synthetic, w.shared_prefix_length);
  note("length_spread", is_synthetic, w.length_spread);
  note("range_ratio", is_synthetic && w.range_ratio > 0, w.range_ratio);
  note("output_tokens", w.trace.empty(), w.output_tokens);
  note("ignore_eos", w.ignore_eos, "true");
  note("slo_ttft_ms", o.slo_ttft_ms > 0, o.slo_ttft_ms);
  note("slo_itl_ms", o.slo_itl_ms > 0, o.slo_itl_ms);
  note("slo_tpot_ms", o.slo_tpot_ms > 0, o.slo_tpot_ms);
  note("slo_e2e_ms", o.slo_e2e_ms > 0, o.slo_e2e_ms);
  note("compare_url", !o.other_url.empty(), o.other_url);
  return settings;
}

}  // namespace quire::load
