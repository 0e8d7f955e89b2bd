#include "app/check/draft_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "model/config.h"

namespace quire {
namespace {

AddRequest request_of(std::span<const TokenId> prompt, std::uint64_t id, std::size_t max_tokens) {
  AddRequest request;
  request.id = RequestId{id};
  request.prompt.assign(prompt.begin(), prompt.end());
  request.sampling.temperature = 0;
  request.sampling.max_tokens = static_cast<int>(max_tokens);
  request.sampling.ignore_eos = true;
  return request;
}

void refuse_errors(const StepOutput& output) {
  for (const RequestOutput& one : output.requests)
    if (one.error) throw Failure(*one.error);
}

// Of a step with one request.
std::vector<TokenId> tokens_of(const StepOutput& output) {
  std::vector<TokenId> tokens;
  for (const TokenOutput& one : output.tokens) tokens.push_back(one.token);
  for (const RequestOutput& one : output.requests)
    tokens.insert(tokens.end(), one.token_ids.begin(), one.token_ids.end());
  return tokens;
}

double max_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    most = std::max(most, difference);
  }
  return most;
}

}  // namespace

DraftCheck::DraftCheck(EngineConfig config, const DraftGolden& golden, BackendFactory backend)
    : config_(std::move(config)), golden_(golden), backend_(std::move(backend)) {
  config_.model.path = golden.target.string();
  config_.speculative = golden.speculative;
  dtype_ = config_.model.dtype.value_or(read_model_config(config_.model.path).dtype);
}

std::unique_ptr<EngineCore> DraftCheck::engine(int num_drafts, bool is_whole) {
  EngineConfig config = config_;
  config.speculative.num_speculative_tokens = num_drafts;
  config.speculative.adaptive = false;  // the reference drafts every time
  config.deterministic = config.device != DeviceKind::cuda;
  // A limit on chunks cuts drafts as well, which the reference does not.
  if (int& most = config.scheduler.long_prefill_token_threshold; most > 0 && is_whole)
    most = std::max(most, 1 + num_drafts);
  proposals_.clear();
  auto core = std::make_unique<EngineCore>(config, EngineId{0}, backend_(config),
                                           [](std::string_view, double) {});
  core->observe_drafts([this](const ShownDraft& shown) {
    Proposal& proposal = proposals_[shown.request][shown.context];
    proposal.drafts.push_back(shown.draft);
    proposal.logits.insert(proposal.logits.end(), shown.logits.begin(), shown.logits.end());
  });
  return core;
}

// A context's last token was drawn: nothing else may be drawn there. Then the request has done its
// work.
std::vector<DraftCaseResult> DraftCheck::run_cases(int batch) {
  const int most = golden_.speculative.num_speculative_tokens;
  const auto core = engine(most, false);
  std::vector<DraftCaseResult> results(golden_.cases.size());
  std::vector<std::pair<std::size_t, const DraftContext*>> todo;  // by request
  for (std::size_t i = 0; i < golden_.cases.size(); ++i)
    for (const DraftContext& context : golden_.cases[i].contexts) todo.emplace_back(i, &context);
  std::size_t next = 0;
  std::vector<std::size_t> running;
  while (next < todo.size() || !running.empty()) {
    for (; next < todo.size() && static_cast<int>(running.size()) < batch; ++next) {
      const auto& [index, context] = todo[next];
      const std::vector<TokenId>& tokens = golden_.cases[index].tokens;
      const auto known = static_cast<std::size_t>(context->length);
      AddRequest request = request_of(std::span(tokens).first(known - 1), next + 1,
                                      static_cast<std::size_t>(most) + 2);
      request.sampling.allowed_tokens = {tokens[known - 1]};
      core->add(std::move(request));
      running.push_back(next);
    }
    refuse_errors(core->step());
    std::erase_if(running, [&](std::size_t at) {
      const RequestId id{at + 1};
      const auto& [index, context] = todo[at];
      const auto found = proposals_[id].find(context->length);
      if (found == proposals_[id].end()) return false;
      compare(*context, found->second, results[index]);
      core->abort(id);
      return true;
    });
  }
  return results;
}

void DraftCheck::compare(const DraftContext& expected, const Proposal& found,
                         DraftCaseResult& result) const {
  result.max_abs = std::max(result.max_abs, max_difference(expected.logits, found.logits));
  bool same_so_far = true;
  for (std::size_t i = 0; i < expected.drafts.size(); ++i) {
    ++result.drafts;
    const bool same = i < found.drafts.size() && found.drafts[i] == expected.drafts[i];
    result.matches += same;
    // Behind another draft everything may differ.
    if (!same && same_so_far && expected.gaps[i] > kSafeDraftGap) ++result.unsafe_misses;
    same_so_far = same_so_far && same && expected.gaps[i] > kSafeDraftGap;
  }
}

std::vector<DraftLoopResult> DraftCheck::run_loops() {
  std::vector<DraftLoopResult> results;
  for (const DraftLoop& loop : golden_.loops) results.push_back(run_loop(loop));
  return results;
}

DraftLoopResult DraftCheck::run_loop(const DraftLoop& loop) {
  DraftLoopResult result;
  const auto core = engine(loop.num_drafts, true);
  const RequestId id{1};
  // Room for the last step's drafts, which nothing cuts in the reference.
  core->add(request_of(loop.prompt, id.value,
                       loop.output.size() + static_cast<std::size_t>(loop.num_drafts) + 2));
  std::vector<TokenId> tokens;
  while (tokens.empty()) {
    const StepOutput first = core->step();
    refuse_errors(first);
    tokens = tokens_of(first);
  }
  for (const DraftLoop::Step& step : loop.steps) {
    const Proposal proposal = proposals_[id][step.context];
    const std::vector<TokenId> emitted = tokens_of(core->step());
    tokens.insert(tokens.end(), emitted.begin(), emitted.end());
    if (proposal.drafts != step.drafts || emitted != step.emitted) return result;
    ++result.steps;
  }
  const EngineStats stats = core->stats();
  std::int64_t accepted = 0;
  for (const DraftPosition& position : stats.draft_positions) accepted += position.accepted;
  result.counters = tokens == loop.output && stats.drafts == loop.total_steps &&
                    stats.draft_tokens == loop.total_drafts && accepted == loop.total_accepted;
  return result;
}

}  // namespace quire
