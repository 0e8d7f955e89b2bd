#include "app/bench/run.h"

#include <algorithm>
#include <chrono>

#include "app/engines/backends.h"

namespace quire {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string BenchCase::name() const {
  std::string text = generate > 0 ? "tg" + std::to_string(generate) : "pp" + std::to_string(prompt);
  if (batch > 1) text += " x" + std::to_string(batch);
  if (depth > 0) text += " @ " + std::to_string(depth);
  return text;
}

int BenchCase::longest() const {
  // Requests that have their first token go on while the prompts of others are computed.
  return generate > 0 ? std::max(depth, 1) + 2 * generate + depth * batch / 64 + batch + 64
                      : prompt + 1;
}

BenchRun::BenchRun(const EngineConfig& config)
    : begun_(now()),
      engine_(config, EngineId{0}, make_backend(config, 0), [](std::string_view, double) {}),
      load_seconds_(now() - begun_) {}

double BenchRun::seconds(const BenchCase& what) {
  ids_.clear();
  tokens_.clear();
  if (what.generate == 0) {
    const double begin = now();
    add(what, 1);
    run_until(1);
    return now() - begin;
  }
  add(what, what.longest() - std::max(what.depth, 1));
  run_until(1);
  int most = 0;
  for (const auto& [id, count] : tokens_) most = std::max(most, count);
  // Some were ahead: all of them once more, then the steps that count.
  const double begin = now();
  for (int i = 0; i < what.generate; ++i) take(engine_.step());
  const double seconds = now() - begin;
  for (const RequestId id : ids_) engine_.abort(id);
  while (engine_.has_work()) engine_.step();
  return seconds;
}

void BenchRun::add(const BenchCase& what, int max_tokens) {
  const auto vocabulary = static_cast<std::uint64_t>(engine_.ready().vocab_size);
  const int length = std::max(what.generate > 0 ? what.depth : what.prompt, 1);
  for (int i = 0; i < what.batch; ++i) {
    AddRequest request;
    request.id = RequestId{next_id_++};
    for (int t = 0; t < length; ++t) {
      random_ = random_ * 6364136223846793005u + 1442695040888963407u;
      request.prompt.push_back(static_cast<TokenId>((random_ >> 33) % vocabulary));
    }
    request.sampling.temperature = 0;
    request.sampling.max_tokens = max_tokens;
    request.sampling.ignore_eos = true;
    if (engine_.ready().pooling.task != PoolingTask::none) request.pooling.emplace();
    ids_.push_back(request.id);
    tokens_[request.id] = 0;
    engine_.add(std::move(request));
  }
}

void BenchRun::run_until(int tokens) {
  const auto is_short = [tokens](const auto& entry) { return entry.second < tokens; };
  while (std::any_of(tokens_.begin(), tokens_.end(), is_short)) take(engine_.step());
}

void BenchRun::take(const StepOutput& output) {
  for (const TokenOutput& one : output.tokens) ++tokens_.at(one.id);
  for (const RequestOutput& one : output.requests) {
    if (one.error) throw Failure(*one.error);
    tokens_.at(one.id) += static_cast<int>(one.token_ids.size()) + (one.pooled.empty() ? 0 : 1);
  }
}

}  // namespace quire
