#include "app/plan_main.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "app/backends.h"
#include "app/engine_flags.h"
#include "cpu/cpu_backend.h"
#include "engine/size_text.h"
#include "model/registry.h"

namespace quire {
namespace {

struct PlanFlags {
  EngineConfig engine;
  std::int64_t total_bytes = 0;
  bool json = false;
};

void add_flags(CLI::App& app, PlanFlags& flags) {
  add_engine_flags(app, flags.engine);
  app.add_flag("--json", flags.json, "Print JSON");
  const auto store = [&flags](const std::string& text) {
    const auto bytes = parse_bytes(text);
    if (bytes.has_error()) throw CLI::ValidationError("--memory", bytes.error().detail);
    flags.total_bytes = *bytes;
  };
  app.add_option_function<std::string>("--memory", store,
                                       "Of the device: 80GiB; then --device is cuda by default. "
                                       "Without it: of this machine's device")
      ->type_name("SIZE");
}

int run(const PlanFlags& flags) {
  const PlanReport report = make_plan_report(flags.engine, flags.total_bytes);
  std::cout << (flags.json ? plan_json(report) : plan_text(report));
  return report.plan.has_value() ? 0 : 1;
}

// --memory describes a machine that need not be this one.
Result<DeviceChoice> planned_device(DeviceKind asked, std::int64_t total_bytes) {
  if (total_bytes == 0) return choose_device(asked);
  return DeviceChoice{.kind = asked == DeviceKind::automatic ? DeviceKind::cuda : asked};
}

PlanReport refusal(const EngineConfig& config, Error why) {
  return {.model = config.model.path, .config = config, .plan = std::move(why)};
}

}  // namespace

PlanReport make_plan_report(EngineConfig config, std::int64_t total_bytes) {
  const auto choice = planned_device(config.device, total_bytes);
  if (choice.has_error()) return refusal(config, choice.error());
  config.device = choice->kind;
  if (auto valid = validate(config); valid.has_error()) return refusal(config, valid.error());
  const ModelConfig model_config = read_model_config(config.model.path);
  const DType dtype = config.model.dtype.value_or(model_config.dtype);
  const std::unique_ptr<Device> device = make_cpu_device();
  const std::unique_ptr<Ops> ops = make_cpu_ops({.threads = 1});
  const std::int64_t length = std::max<std::int64_t>(config.model.max_model_len, 0);
  const LoadOptions options{.dtype = dtype,
                            .load_format = LoadFormat::measure,
                            .max_model_len = static_cast<int>(length)};
  const auto model = load_model(model_config, config.model.path, *device, *ops, options);
  if (total_bytes == 0)
    total_bytes = static_cast<std::int64_t>(make_device(config.device, 0)->memory().total);
  const DeviceBudget budget = device_budget(config, model_config, *model, total_bytes);
  return {.model = config.model.path,
          .architecture = model_config.architecture,
          .dtype = std::string(name_of(dtype)),
          .device = config.device == DeviceKind::cuda ? "cuda" : "cpu",
          .why_not_cuda = choice->why_not_cuda,
          .budget = budget,
          .kv_cache_bytes = kv_cache_budget(config, config.device, budget),
          .config = config,
          .plan = plan_kv_cache(config, model_config, config.device, budget)};
}

int plan_main(int argc, const char* const* argv) {
  CLI::App app("What quire serve would allocate, and what it would refuse. Loads no weights.",
               "quire plan");
  PlanFlags flags;
  add_flags(app, flags);
  try {
    app.parse(argc, argv);
    return run(flags);
  } catch (const CLI::Success& asked_for_help) {
    return app.exit(asked_for_help);
  } catch (const CLI::ParseError& wrong) {
    app.exit(wrong);
  } catch (const std::exception& failure) {
    std::cerr << "quire plan: " << failure.what() << "\n";
  }
  return 2;
}

}  // namespace quire
