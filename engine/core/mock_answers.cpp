#include "engine/core/mock_answers.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

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

Ready MockAnswers::start(const EngineConfig& config) {
  const ServedModel served = read_served_model(config);
  if (served.pooling.pools()) {
    throw Failure(
        Error{ErrorCode::invalid_argument,
              "EngineConfig::device mock makes tokens, and no vectors for a pooling model; "
              "what works: PoolingOptions::runner generate",
              "PoolingOptions::runner"});
  }
  const ModelConfig& model = served.model;
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
  return ready;
}

void MockAnswers::add(const AddRequest& request, std::vector<EngineEvent>& events) {
  if (auto error = refusal(request)) {
    StepOutput output;
    RequestOutput& told = output.requests.emplace_back();
    told.id = request.id;
    told.finish_reason = FinishReason::error;
    told.error = std::move(*error);
    output.stats = stats_;
    events.push_back(std::move(output));
    return;
  }
  Running& one = running_.emplace_back();
  one.id = request.id;
  one.token = request.prompt.back();
  one.left = request.sampling.max_tokens;
  one.times.queued = one.times.scheduled = Clock::now();
  stats_.prompt_tokens += static_cast<std::int64_t>(request.prompt.size());
}

void MockAnswers::apply(Command& command, std::vector<EngineEvent>& events) {
  if (auto* request = std::get_if<AddRequest>(&command)) {
    add(*request, events);
  } else if (auto* abort = std::get_if<AbortRequest>(&command)) {
    if (std::erase_if(running_, [&](const Running& one) { return one.id == abort->id; }) == 0)
      return;
    stats_.num_running = static_cast<int>(running_.size());
    StepOutput told;
    told.stats = stats_;
    events.push_back(std::move(told));
  } else if (auto* reset = std::get_if<ResetPrefixCache>(&command)) {
    events.push_back(PrefixCacheReset{.call = reset->call, .done = true});
  } else if (auto* report = std::get_if<ReportBlocks>(&command)) {
    BlockReport nothing;
    nothing.call = report->call;
    events.push_back(std::move(nothing));
  }
}

StepOutput MockAnswers::step(int tokens) {
  StepOutput output;
  output.time = Clock::now();
  stats_.step_requests = static_cast<int>(running_.size());
  stats_.step_tokens = 0;
  for (Running& one : running_) {
    const int count = std::min(tokens, one.left);
    one.left -= count;
    stats_.step_tokens += count;
    const bool is_first = std::exchange(one.times.last_token, output.time) == Clock::time_point();
    if (!is_first && one.left > 0 && count == 1) {
      output.tokens.push_back({one.id, one.token});
      continue;
    }
    if (is_first) one.times.first_token = output.time;
    RequestOutput& told = output.requests.emplace_back();
    told.id = one.id;
    told.token_ids.assign(static_cast<std::size_t>(count), one.token);
    told.times = one.times;
    if (one.left <= 0) told.finish_reason = FinishReason::length;
  }
  std::erase_if(running_, [](const Running& one) { return one.left <= 0; });
  stats_.num_running = static_cast<int>(running_.size());
  stats_.generation_tokens += stats_.step_tokens;
  ++stats_.steps;
  output.stats = stats_;
  return output;
}

}  // namespace quire
