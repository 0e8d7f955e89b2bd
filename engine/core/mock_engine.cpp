#include "engine/core/mock_engine.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "engine/core/served_model.h"
#include "engine/kv_transfer/transfer_params.h"

namespace quire {

namespace {

// What needs logits or keys and values, of which there are none.
std::optional<Error> refusal(const AddRequest& request) {
  const SamplingParams& sampling = request.sampling;
  const auto refuse = [](std::string what, std::string param) {
    return Error{ErrorCode::invalid_argument,
                 what + ": EngineConfig::device mock computes nothing and cannot give that",
                 std::move(param)};
  };
  if (sampling.constraint) return refuse("output that follows a schema or grammar", "");
  if (sampling.logprobs) return refuse("logprobs", "logprobs");
  if (sampling.prompt_logprobs) return refuse("prompt_logprobs", "prompt_logprobs");
  if (const auto ok = refuse_transfer(request.transfer_params); !ok) return ok.error();
  return std::nullopt;
}

}  // namespace

MockEngine::MockEngine(EngineId id, std::unique_ptr<EngineEnd> end)
    : id_(id), end_(std::move(end)), thread_([this] { run(); }) {}

MockEngine::~MockEngine() {
  end_->close();
  thread_.join();
}

bool MockEngine::start_up() {
  end_->publish(Hello{id_, std::string(quire_version())});
  std::vector<Command> commands;
  while (commands.empty()) {
    if (!end_->wait_and_take(commands)) return false;
  }
  const auto& config = std::get<Configure>(commands.front()).config;
  const ServedModel served = read_served_model(config);
  if (served.pooling.pools()) {
    throw Failure(Error{ErrorCode::invalid_argument,
                        "EngineConfig::device mock makes tokens, and no vectors for a pooling model; "
                        "what works: PoolingOptions::runner generate",
                        "PoolingOptions::runner"});
  }
  const ModelConfig& model = served.model;
  step_time_ = std::chrono::microseconds(config.mock_step_us);
  Ready ready;
  ready.engine = id_;
  ready.version = quire_version();
  ready.max_model_len = config.model.max_model_len > 0
                            ? static_cast<int>(config.model.max_model_len)
                            : model.max_position_embeddings;
  ready.num_gpu_blocks = 1;  // the null block: nothing is cached
  ready.block_size = 16;
  ready.vocab_size = model.vocab_size;
  ready.device = ready.model_fingerprint = "mock";
  end_->publish(std::move(ready));
  return true;
}

void MockEngine::apply(Command& command) {
  if (auto* add = std::get_if<AddRequest>(&command)) {
    if (auto error = refusal(*add)) {
      StepOutput output;
      RequestOutput& told = output.requests.emplace_back();
      told.id = add->id;
      told.finish_reason = FinishReason::error;
      told.error = std::move(*error);
      output.stats = stats_;
      return end_->publish(std::move(output));
    }
    Running& one = running_.emplace_back();
    one.id = add->id;
    one.token = add->prompt.back();
    one.left = add->sampling.max_tokens;
    one.times.queued = one.times.scheduled = Clock::now();
    stats_.prompt_tokens += static_cast<std::int64_t>(add->prompt.size());
  } else if (auto* abort = std::get_if<AbortRequest>(&command)) {
    std::erase_if(running_, [&](const Running& one) { return one.id == abort->id; });
  } else if (auto* reset = std::get_if<ResetPrefixCache>(&command)) {
    end_->publish(PrefixCacheReset{.call = reset->call, .done = true});
  } else if (auto* report = std::get_if<ReportBlocks>(&command)) {
    BlockReport nothing;
    nothing.call = report->call;
    end_->publish(std::move(nothing));
  }
}

StepOutput MockEngine::step() {
  StepOutput output;
  output.time = Clock::now();
  for (Running& one : running_) {
    --one.left;
    const bool is_first = std::exchange(one.times.last_token, output.time) == Clock::time_point();
    if (!is_first && one.left > 0) {
      output.tokens.push_back({one.id, one.token});
      continue;
    }
    if (is_first) one.times.first_token = output.time;
    RequestOutput& told = output.requests.emplace_back();
    told.id = one.id;
    told.token_ids = {one.token};
    told.times = one.times;
    if (one.left <= 0) told.finish_reason = FinishReason::length;
  }
  stats_.num_running = stats_.step_requests = stats_.step_tokens =
      static_cast<int>(running_.size());
  stats_.generation_tokens += stats_.step_tokens;
  ++stats_.steps;
  std::erase_if(running_, [](const Running& one) { return one.left <= 0; });
  output.stats = stats_;
  return output;
}

void MockEngine::run() {
  try {
    if (!start_up()) return;
    std::vector<Command> commands;
    auto next = Clock::now();
    while (true) {
      commands.clear();
      const bool open = running_.empty() ? end_->wait_and_take(commands) : end_->take(commands);
      if (!open) return;
      for (Command& command : commands) apply(command);
      if (running_.empty()) continue;
      next = std::max(next + step_time_, Clock::now());
      std::this_thread::sleep_until(next);
      end_->publish(step());
    }
  } catch (const std::exception& e) {
    log::error("engine.dead", {{"engine", id_.value}, {"error", e.what()}});
    end_->publish(EngineDead{id_, e.what()});
    end_->close();
  }
}

}  // namespace quire
