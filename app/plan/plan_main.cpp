#include "app/plan/plan_main.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "app/args/failure_text.h"
#include "app/args/forgiving_args.h"
#include "app/engines/backends.h"
#include "app/flags/engine_flags.h"
#include "app/flags/graph_flags.h"
#include "app/models/pull_main.h"
#include "cpu/cpu_backend.h"
#include "engine/core/served_model.h"
#include "engine/size_text.h"
#include "gguf/archive.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/registry.h"
#include "text/template/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

constexpr int kMostRanks = 64;

struct PlanFlags {
  EngineConfig engine;
  std::int64_t total_bytes = 0;
  bool json = false;
};

void add_flags(CLI::App& app, PlanFlags& flags) {
  add_engine_flags(app, flags.engine);
  app.add_flag("--json", flags.json, "Print JSON");
  const auto store = [&flags](const std::string& text) {
    const auto bytes = parse_bytes_with_unit(text);
    if (bytes.has_error()) throw CLI::ValidationError("--memory", bytes.error().detail);
    flags.total_bytes = *bytes;
  };
  app.add_option_function<std::string>("--memory", store,
                                       "Of the device: 80GiB; then --device is cuda by default. "
                                       "Without it: of this machine's device")
      ->type_name("SIZE");
}

// --memory describes a machine that need not be this one.
Result<DeviceChoice> choose_planned_device(DeviceKind asked, std::int64_t total_bytes) {
  if (total_bytes == 0) return choose_device(asked);
  return DeviceChoice{.kind = asked == DeviceKind::automatic ? DeviceKind::cuda : asked};
}

PlanReport refusal(const EngineConfig& config, Error why) {
  PlanReport report{.model = config.model.path, .config = config, .plan = {}};
  report.plan.model = std::move(why);
  return report;
}

// The machine's own, or one of total_bytes that is elsewhere.
PlannedDevice device_to_plan(DeviceKind kind, std::int64_t total_bytes) {
  const OpsTraits& traits = ops_traits(kind);
  if (total_bytes == 0) return planned_device(kind, *make_device(kind, 0), traits);
  return {.kind = kind,
          .is_host_memory = kind == DeviceKind::cpu,
          .total_bytes = total_bytes,
          .ops = traits};
}

bool can_be_divided(const EngineConfig& config, const PlannedDevice& device) {
  return !device.is_host_memory && !config.speculative.uses_draft_model();
}

// Of devices of this memory.
int devices_needed(EngineConfig config, const ServedModel& served, const PlannedDevice& device) {
  if (!can_be_divided(config, device)) return 0;
  for (int size = 1; size <= kMostRanks; ++size) {
    if (!can_divide(served.model, config.model.path, device.is_host_memory, device.ops,
                    {.dtype = config.model.dtype.value_or(served.model.dtype),
                     .load_format = config.model.load_format},
                    size))
      continue;
    config.parallel.tensor_parallel_size = size;
    const EnginePlan plan = plan_engine(config, served.model, device, served.pooling);
    if (plan.model.has_value()) return size;
  }
  return 0;
}

// What keeps a server from starting with these files; none: nothing does.
std::optional<Error> trouble(const std::function<void()>& read) try {
  read();
  return {};
} catch (const Failure& failure) {
  return failure.error();
}

void note_template(const std::string& model, std::vector<std::string>& notes) {
  const auto error = trouble([&] { ChatTemplate::load(model); });
  if (error && error->code != ErrorCode::not_found)
    notes.push_back(error->detail + "; a server needs another one, --chat-template");
}

// A folder is planned from config.json alone. What else there is and would be refused is told.
void note_other_files(const EngineConfig& config, std::vector<std::string>& notes) {
  const std::string& model = config.model.path;
  const auto look = [&](const std::function<void()>& read) {
    const auto error = trouble(read);
    if (error && error->code != ErrorCode::not_found)
      notes.push_back("a server would refuse this: " + error->detail);
    return error;
  };
  if (config.model.load_format != LoadFormat::dummy) look([&] { Checkpoint{model}; });
  const auto words = look([&] { Tokenizer::load(model); });
  if (words && words->code == ErrorCode::not_found)
    notes.push_back("a server needs more files: " + words->detail);
  note_template(model, notes);
  look([&] { read_generation_config(model); });
}

int run(const PlanFlags& flags) {
  PlanReport report = make_plan_report(flags.engine, flags.total_bytes);
  if (report.plan.model.has_value()) {
    const std::string& model = flags.engine.model.path;
    std::vector<std::string>& notes = report.plan.model->notes;
    if (!gguf::is_gguf(model)) {
      note_other_files(report.config, notes);
    } else if (const auto words = trouble([&] { Tokenizer::load(model); })) {
      report = refusal(flags.engine, *words);
    } else {
      note_template(model, notes);
    }
  }
  std::cout << (flags.json ? plan_json(report) : plan_text(report));
  return report.plan.model.has_value() ? 0 : 1;
}

}  // namespace

PlanReport make_plan_report(EngineConfig config, std::int64_t total_bytes) {
  const auto choice = choose_planned_device(config.device, total_bytes);
  if (choice.has_error()) return refusal(config, choice.error());
  config.device = choice->kind;
  if (auto valid = validate(config); valid.has_error()) return refusal(config, valid.error());
  const ServedModel served = read_served_model(config);
  const ModelConfig& model_config = served.model;
  config = served.config;
  const auto device = [&] { return device_to_plan(config.device, total_bytes); };
  EnginePlan plan = plan_engine(config, model_config, device(), served.pooling);
  if (plan.model.has_value())
    plan.model->notes.insert(plan.model->notes.end(), served.notes.begin(), served.notes.end());
  const int needed = total_bytes > 0 ? devices_needed(config, served, device()) : 0;
  const bool none_holds = total_bytes > 0 && needed == 0 && can_be_divided(config, device());
  return {.model = config.model.path,
          .architecture = model_config.architecture,
          .dtype = std::string(name_of(config.model.dtype.value_or(model_config.dtype))),
          .quantization = model_config.quant.method,
          .from_config_alone = config.model.load_format != LoadFormat::dummy &&
                               !Checkpoint::is_in(config.model.path),
          .device = config.device == DeviceKind::cuda ? "cuda" : "cpu",
          .cpu_threads = config.device == DeviceKind::cpu && total_bytes == 0
                             ? threads_of_engine(config, available_cores())
                             : 0,
          .why_not_cuda = choice->why_not_cuda,
          .config = config,
          .pooling = served.pooling,
          .plan = std::move(plan),
          .devices_needed = needed,
          .devices_tried = none_holds ? kMostRanks : 0};
}

int plan_main(int argc, const char* const* argv) {
  CLI::App app("What quire serve would allocate, and what it would refuse. Loads no weights.",
               "quire plan");
  PlanFlags flags;
  add_flags(app, flags);
  try {
    parse_forgivingly(app, argc, argv);
    if (flags.engine.model.path.empty()) throw CLI::RequiredError("MODEL");
    flags.engine.model.path = local_model(flags.engine.model.path);
    find_draft_model(flags.engine, false);
    if (const auto choice = choose_planned_device(flags.engine.device, flags.total_bytes))
      forget_idle_sizes(app, flags.engine, choice->kind);
    check_engine_flags(app, flags.engine);
    return run(flags);
  } catch (const CLI::Success& asked_for_help) {
    return app.exit(asked_for_help);
  } catch (const CLI::ParseError& wrong) {
    app.exit(wrong);
  } catch (const std::exception& failure) {
    std::cerr << "quire plan: " << failure_text(failure) << "\n";
  }
  return 2;
}

}  // namespace quire
