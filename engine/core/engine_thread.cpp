#include "engine/core/engine_thread.h"

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/message_of.h"
#include "engine/core/engine_core.h"
#include "model/pooling_config.h"

namespace quire {
namespace {

void log_states(EngineId id, const ModelPlan& plan) {
  if (const auto& checkpoint = plan.checkpoint) {
    log::info("engine.states", {{"engine", id.value},
                                {"mode", name_of(plan.state_cache_mode)},
                                {"checkpoint_blocks", checkpoint->num_blocks},
                                {"checkpoint_bytes", checkpoint->bytes},
                                {"checkpoints_in_pool", checkpoint->num_in_pool},
                                {"checkpoints_beside_request", checkpoint->num_beside_request}});
  }
  for (const std::string& note : plan.notes) {
    log::warn("engine.plan", {{"engine", id.value}, {"note", note}});
  }
}

void apply(EngineCore& core, EngineEnd& end, Command& command) {
  if (auto* add = std::get_if<AddRequest>(&command)) core.add(std::move(*add));
  if (auto* abort = std::get_if<AbortRequest>(&command)) core.abort(abort->id);
  if (auto* reset = std::get_if<ResetPrefixCache>(&command))
    end.publish(core.reset_prefix_cache(reset->call));
  if (auto* report = std::get_if<ReportBlocks>(&command))
    end.publish(core.report_blocks(report->call));
  if (auto* notice = std::get_if<PushNotice>(&command)) core.take_notice(*notice);
  if (auto* refused = std::get_if<FetchRefused>(&command)) core.take_notice(*refused);
}

}  // namespace

EngineThread::EngineThread(EngineId id, std::unique_ptr<EngineEnd> end, BackendFactory backend)
    : id_(id), end_(std::move(end)), backend_(std::move(backend)), thread_([this] { run(); }) {}

EngineThread::~EngineThread() {
  end_->close();
  thread_.join();
}

void EngineThread::run() {
  std::string error = "unknown";
  try {
    serve();
    return end_->close();
  } catch (const std::exception& e) {
    error = message_of(e);
  } catch (...) {
  }
  log::error("engine.dead", {{"engine", id_.value}, {"error", error}});
  end_->publish(EngineDead{id_, error});
  end_->close();
}

void EngineThread::serve() {
  if (const auto core = start_up()) loop(*core);
}

std::unique_ptr<EngineCore> EngineThread::start_up() {
  end_->publish(Hello{id_, std::string(quire_version())});
  std::vector<Command> commands;
  while (commands.empty()) {
    if (!end_->wait_and_take(commands)) return nullptr;
  }
  const auto* configure = std::get_if<Configure>(&commands.front());
  if (configure == nullptr) {
    throw Failure(ErrorCode::internal, "the front end sent a request before Configure");
  }
  const EngineConfig& config = configure->config;
  auto core = std::make_unique<EngineCore>(
      config, id_, backend_(config),
      [this](std::string_view stage, double fraction) {
        end_->publish(StartupProgress{std::string(stage), fraction});
      },
      [this] { end_->wake(); });
  const Ready& ready = core->ready();
  log::info("engine.ready", {{"engine", id_.value},
                             {"device", ready.device},
                             {"dtype", ready.dtype},
                             {"task", name_of(ready.pooling.task)},
                             {"max_model_len", ready.max_model_len},
                             {"block_size", ready.block_size},
                             {"num_gpu_blocks", ready.num_gpu_blocks},
                             {"kv_cache_size_tokens", ready.kv_cache_size_tokens},
                             {"seconds", ready.startup_seconds}});
  log_states(id_, core->plan());
  end_->publish(ready);
  return core;
}

void EngineThread::loop(EngineCore& core) {
  std::vector<Command> commands;
  while (true) {
    commands.clear();
    const bool sleeps = !core.has_work() || core.is_idle();
    const bool open = sleeps ? end_->wait_and_take(commands) : end_->take(commands);
    if (!open) return;
    for (Command& command : commands) apply(core, *end_, command);
    end_->publish(core.step());
  }
}

}  // namespace quire
