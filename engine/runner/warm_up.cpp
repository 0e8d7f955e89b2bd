// ModelRunner before the first request: everything touched once, graphs captured, steps timed.

#include <algorithm>
#include <chrono>
#include <climits>
#include <numeric>
#include <utility>

#include "engine/runner/model_runner.h"

namespace quire {
namespace {

using std::chrono::steady_clock;

// A step that takes a device this long leaves a host the time to queue the next one's launches.
constexpr std::chrono::milliseconds kHidesHost(5);

// Steps follow each other: the host queues one while the device computes another. What a graph costs
// the device are blocks for lengths and rows that are not there.
template <class Step>
steady_clock::duration step_time(Device& device, const Step& step) {
  constexpr int kRounds = 3, kSteps = 3;
  auto best = steady_clock::duration::max();
  for (int round = 0; round < kRounds; ++round) {
    // survives deletion: without it a round would have the steps of the one before
    device.synchronize(device.stream());
    const auto start = steady_clock::now();
    for (int i = 0; i < kSteps; ++i) step();
    // survives deletion: without it only the host's time would be seen
    device.synchronize(device.stream());
    best = std::min(best, steady_clock::now() - start);
  }
  return best / kSteps;
}

}  // namespace

// On the first blocks of the pool, which nobody has yet: a place for each token, as in every step.
void ModelRunner::warm_up() {
  std::vector<BlockId> blocks(static_cast<std::size_t>(plan_.num_blocks));
  std::iota(blocks.begin(), blocks.end(), 0);
  // A CPU has nothing to load ahead; a long prompt there would only take time.
  const int num_prompt = std::min(longest_warm_up(), device_.is_host_memory() ? 8 : INT_MAX);
  warm_up_eager(blocks, num_prompt);
  const int num_tokens = num_prompt + 1 + options_.limits.max_drafts;
  capture_graphs();
  zero_warmed(blocks, num_tokens);
}

void ModelRunner::zero_warmed(const std::vector<BlockId>& blocks, int num_tokens) {
  const auto used = static_cast<std::size_t>(num_tokens / plan_.block_size + 1);
  memory_.zero_blocks(std::span(blocks).first(std::min(blocks.size(), used)), device_.stream());
  // survives deletion: it is here that a fault of the warm-up ends the start, not the first request
  device_.synchronize(device_.stream());
}

// Each size runs once before it is captured: that loads kernels and chooses algorithms, which a
// capture must not. A device may have no graphs whatever the operators say.
void ModelRunner::capture_graphs() {
  for (const int rows : options_.graph_sizes)
    if (!capture({.num_drafts = 0, .num_rows = rows})) return;
  for (const int rows : options_.draft_graph_sizes)
    if (!capture({.num_drafts = options_.limits.max_drafts, .num_rows = rows})) return;
  for (const int tokens : options_.mixed_graph_sizes)
    if (!capture(mixed_shape(tokens, options_.limits.max_num_seqs))) break;
  if (options_.captures_drafting)
    for (const int rows : options_.graph_sizes)
      if (!drafts_->capture(rows, workspace_)) return;
  if (!options_.captures_all_drafting) return;
  device_.zero(hidden_.data(), hidden_.bytes(), device_.stream());
  for (const int rows : options_.draft_graph_sizes)
    if (!drafts_->capture_all(rows, hidden(rows * (1 + options_.limits.max_drafts)), workspace_))
      return;
}

bool ModelRunner::capture(const GraphShape& shape) {
  const StepInputs& inputs = batch_.build({}, shape, device_.stream());
  if (options_.line != nullptr)
    options_.line->post_step(RankMessage::Kind::capture, batch_.shape(), {}, batch_.packed());
  compute_graph(inputs, shape);
  // survives deletion: the next size but one refills this one's pack; padding is always the same
  device_.synchronize(device_.stream());
  auto graph = device_.capture([&] { compute_graph(inputs, shape); });
  if (graph == nullptr) return false;
  if (shape.is_mixed() && options_.keeps_faster_mixed) {
    const auto queued = step_time(device_, [&] {
      const Workspace::Scope scope(workspace_);
      compute_hidden(inputs, context(inputs, inputs.max_seq_len));
    });
    if (queued > kHidesHost) return false;  // and of larger steps all the more
    const auto replayed = step_time(device_, [&] { graph->replay(device_.stream()); });
    if (replayed >= queued) graph = nullptr;
  }
  graphs_.add(shape, std::move(graph));
  return true;
}

// In one step, on the pool's blocks.
int ModelRunner::longest_warm_up() const {
  const std::int64_t room = plan_.num_blocks * plan_.block_size;
  return static_cast<int>(std::max<std::int64_t>(
      1, std::min<std::int64_t>({options_.limits.max_num_batched_tokens,
                                 options_.limits.max_model_len - 1, room - 1})));
}

// A prompt and a decode step.
ModelRunner::PromptTime ModelRunner::warm_up_eager(const std::vector<BlockId>& blocks,
                                                   int num_prompt) {
  auto start = std::chrono::steady_clock::now();
  const auto lap = [&] {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(start, now)).count();
  };
  PromptTime time{.num_tokens = num_prompt};
  RequestInit init;
  init.prompt.assign(num_prompt, 0);
  Request request(std::move(init));
  BatchPlan plan;
  plan.rows = {{.request = &request, .num_tokens = num_prompt, .is_new = true, .samples = true}};
  plan.num_tokens = num_prompt;
  for (int group = 0; group < batch_.num_groups(); ++group) {
    const int count = batch_.max_blocks(group);
    plan.block_updates.push_back({.row = 0, .group = group, .first = 0, .count = count});
    for (int i = static_cast<int>(plan.block_ids.size()); i < count; ++i) {
      plan.block_ids.push_back(blocks[static_cast<std::size_t>(i) % blocks.size()]);
    }
  }
  launch(plan);
  if (options_.pooling) {
    collect();
    return time;
  }
  const auto draft = [&] {
    if (!drafts_) return;
    propose({&options_.limits.max_drafts, 1});
    wait_for_drafts();
  };
  const TokenId token = collect().sampled[0];
  time.seconds = lap();
  draft();
  time.drafting = lap();
  request.append(token);
  plan.block_updates.clear();
  plan.rows[0] = {
      .request = &request, .num_computed = num_prompt, .num_tokens = 1, .samples = true};
  plan.num_tokens = 1;
  launch(plan);
  collect();
  lap();
  draft();
  time.drafting_one = lap();
  return time;
}

std::vector<ModelRunner::PromptTime> ModelRunner::time_prompts(int least, int most,
                                                               double most_seconds) {
  std::vector<BlockId> blocks(static_cast<std::size_t>(plan_.num_blocks));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<PromptTime> times;
  constexpr double kLong = 2;  // seconds, of a start
  double sum = 0;
  const int longest = std::min(longest_warm_up(), most);
  for (int num_tokens = std::min(least, longest);; num_tokens = std::min(2 * num_tokens, longest)) {
    // The first may find pages that nobody touched yet.
    const PromptTime first = warm_up_eager(blocks, num_tokens);
    PromptTime& time = times.emplace_back(warm_up_eager(blocks, num_tokens));
    sum += first.seconds + first.drafting + time.seconds + time.drafting;
    time.seconds = std::min(time.seconds, first.seconds);
    time.drafting = std::min(time.drafting, first.drafting);
    time.drafting_one = std::min(time.drafting_one, first.drafting_one);
    // The next takes at most twice as long. What is not measured is expected in proportion.
    if (num_tokens == longest || time.seconds > most_seconds || 3 * sum > kLong) break;
  }
  zero_warmed(blocks, times.back().num_tokens + 1 + options_.limits.max_drafts);
  return times;
}

}  // namespace quire
