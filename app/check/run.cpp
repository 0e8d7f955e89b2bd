#include "app/check/run.h"

#include <algorithm>

#include "app/engines/backends.h"
#include "model/config.h"

namespace quire {

CheckRun::CheckRun(const EngineConfig& config, const Golden& golden)
    : golden_(golden),
      dtype_(config.model.dtype.value_or(read_model_config(config.model.path).dtype)),
      engine_(config, EngineId{0}, make_backend(config, 0), [](std::string_view, double) {}) {
  if (engine_.ready().vocab_size != golden.vocab_size) {
    throw Failure(ErrorCode::invalid_argument, "golden logits have " +
                                                   std::to_string(golden.vocab_size) +
                                                   " columns, the model's vocabulary is " +
                                                   std::to_string(engine_.ready().vocab_size));
  }
  engine_.observe_logits([this](RequestId id, int position, std::span<const float> row) {
    const auto it = running_.find(id);
    if (it == running_.end()) return;
    std::vector<float>& logits = it->second.logits;
    const std::size_t at = static_cast<std::size_t>(position) * row.size();
    if (at + row.size() <= logits.size()) std::copy(row.begin(), row.end(), logits.begin() + at);
  });
}

std::vector<CaseResult> CheckRun::run(int batch) {
  results_.assign(golden_.cases.size(), {});
  for (std::size_t next = 0; next < golden_.cases.size() || !running_.empty();) {
    while (next < golden_.cases.size() && running_.size() < static_cast<std::size_t>(batch)) {
      start(next++);
    }
    take(engine_.step());
  }
  return std::move(results_);
}

void CheckRun::start(std::size_t index) {
  const GoldenCase& c = golden_.cases[index];
  AddRequest request;
  request.id = RequestId{index + 1};
  request.prompt = c.prompt;
  request.sampling.temperature = 0;
  request.sampling.max_tokens = static_cast<int>(std::max<std::size_t>(c.greedy.size(), 1));
  request.sampling.ignore_eos = true;
  request.sampling.skip_reading_prefix_cache = true;  // every position is compared
  Running& running = running_[request.id];
  running.index = index;
  // What no step computes stays NaN and is a miss.
  running.logits.assign(c.logits.size(), std::numeric_limits<float>::quiet_NaN());
  engine_.add(std::move(request));
}

void CheckRun::take(const StepOutput& output) {
  for (const TokenOutput& one : output.tokens) running_.at(one.id).tokens.push_back(one.token);
  for (const RequestOutput& one : output.requests) {
    Running& running = running_.at(one.id);
    if (one.error) throw Failure(*one.error);
    running.tokens.insert(running.tokens.end(), one.token_ids.begin(), one.token_ids.end());
    if (!one.finish_reason) continue;
    finish(running);
    running_.erase(one.id);
  }
}

void CheckRun::finish(Running& running) {
  const GoldenCase& c = golden_.cases[running.index];
  CaseResult& result = results_[running.index];
  result.distance = distance(running.logits, c.logits, golden_.vocab_size);
  const auto [own, reference] =
      std::mismatch(running.tokens.begin(), running.tokens.end(), c.greedy.begin(), c.greedy.end());
  result.greedy_matches = static_cast<std::size_t>(reference - c.greedy.begin());
}

}  // namespace quire
