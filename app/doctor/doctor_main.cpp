#include "app/doctor/doctor_main.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>

#include "app/args/failure_text.h"
#include "app/args/flag_names.h"
#include "app/args/forgiving_args.h"
#include "app/bench/model.h"
#include "app/bench/report.h"
#include "app/doctor/report.h"
#include "app/models/model_path.h"
#include "app/models/pull_main.h"
#include "app/plan/plan_main.h"
#include "app/serve/model_text.h"
#include "base/error.h"
#include "base/log.h"
#include "model/checkpoint.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

struct DoctorFlags {
  std::string model;
  double seconds = 10;
  bool json = false;
};

MachineLimits better(const MachineLimits& a, const MachineLimits& b) {
  return {.read_gb = std::max(a.read_gb, b.read_gb),
          .copy_gb = std::max(a.copy_gb, b.copy_gb),
          .bf16_gflops = std::max(a.bf16_gflops, b.bf16_gflops),
          .f32_gflops = std::max(a.f32_gflops, b.f32_gflops),
          .int8_gops = std::max(a.int8_gops, b.int8_gops)};
}

SpeedProbe probe_for(double seconds, int threads) {
  SpeedProbe probe;
  std::vector<double> reads;
  const auto begin = Clock::now();
  do {
    const MachineLimits one = probe_machine(threads);
    reads.push_back(one.read_gb);
    probe.best = better(probe.best, one);
    probe.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  } while (probe.seconds < seconds);
  probe.passes = static_cast<int>(reads.size());
  probe.usual_share = median(reads) / probe.best.read_gb;
  return probe;
}

// Reads what a server reads before its engine starts. Empty: it can be read.
std::string trouble_with_files(const std::string& path) {
  try {
    const Checkpoint weights(path);
    ServeFlags flags;
    flags.engine.model.path = path;
    load_model_text(flags);
    return {};
  } catch (const std::exception& failure) {
    return failure_text(failure);
  }
}

// Sizes it all as an engine does, weights by name and quantization included.
std::string trouble_with_plan(const EngineConfig& config, PlanReport& plan) {
  try {
    plan = make_plan_report(config, 0);
    return plan.plan.model ? std::string() : with_flags(plan.plan.model.error().detail);
  } catch (const std::exception& failure) {
    return failure_text(failure);
  }
}

// The plan of MODEL in a sentence, and what its weights allow at most.
void judge_model(const std::string& given, DoctorReport& report) {
  EngineConfig config;
  config.model.path = model_at(model_folder(given, false));
  if (!std::filesystem::exists(config.model.path))
    throw Failure(ErrorCode::not_found, config.model.path + ": no such folder or file");
  std::string trouble = trouble_with_files(config.model.path);
  PlanReport plan;
  if (trouble.empty()) trouble = trouble_with_plan(config, plan);
  report.model_fits = trouble.empty();
  report.model_verdict =
      report.model_fits
          ? fmt::format("{}: would be served on {}; `quire plan` has the figures", given,
                        plan.device)
          : fmt::format("{}: would be refused: {}", given, trouble);
  if (!report.model_fits || !report.probe || plan.device != "cpu") return;
  const BenchModel size = bench_model(config.model.path, read_model_config(config.model.path));
  if (size.step_bytes == 0) return;  // no weight files
  const double products = size.token_products;
  report.estimates.insert(
      report.estimates.begin(),
      {.name = given,
       .weight_bytes = size.file_bytes,
       .fits = report.model_fits,
       .most_generated = report.probe->best.read_gb * 1e9 / size.step_bytes,
       .most_prompt = products > 0 ? report.probe->best.bf16_gflops * 1e9 / (2 * products) : 0});
}

DoctorReport examine(const DoctorFlags& flags) {
  DoctorReport report;
  report.facts = read_machine_facts();
  report.advice = advice_for(report.facts);
  if (flags.seconds > 0) {
    report.probe = probe_for(flags.seconds, report.facts.engine_cores);
    report.estimates = usual_estimates(report.facts, *report.probe);
    if (report.probe->usual_share < 0.8) {
      report.advice.push_back(
          {"noise",
           fmt::format("memory was usually read at {:.0f} % of the best pass",
                       100 * report.probe->usual_share),
           "other work on the machine, or a virtual machine's neighbours, take the rest"});
    }
  }
  if (!flags.model.empty()) judge_model(flags.model, report);
  return report;
}

}  // namespace

int doctor_main(int argc, const char* const* argv) {
  CLI::App app(
      "What this machine has, what stands in a server's way, and what would run how fast at most.",
      "quire doctor");
  DoctorFlags flags;
  app.add_option("MODEL", flags.model,
                 "Folder, .gguf file or org/name in the cache: would it be served here?");
  app.add_option("--seconds", flags.seconds,
                 "How long to probe the processor and its memory; 0: not (10)")
      ->check(CLI::Range(0.0, 600.0));
  app.add_flag("--json", flags.json, "Print JSON");
  try {
    parse_forgivingly(app, argc, argv);
    log::configure(log::Format::text, log::Level::error, with_flags);
    const DoctorReport report = examine(flags);
    std::cout << (flags.json ? doctor_json(report) : doctor_text(report));
    return report.model_fits ? 0 : 1;
  } catch (const CLI::Success& asked_for_help) {
    return app.exit(asked_for_help);
  } catch (const CLI::ParseError& wrong) {
    return app.exit(wrong);
  } catch (const std::exception& failure) {
    std::cerr << "quire doctor: " << failure_text(failure) << "\n";
  }
  return 2;
}

}  // namespace quire
