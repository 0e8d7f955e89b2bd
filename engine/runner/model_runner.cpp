#include "engine/runner/model_runner.h"

#include <algorithm>
#include <cassert>

#include "backend/no_token.h"

namespace quire {
namespace {

std::size_t hidden_bytes(const Model& model, int rows) {
  return static_cast<std::size_t>(rows) * model.hidden_size() * size_of(model.dtype());
}

// A model that pools draws nothing.
int num_drawn_from(const Model& model, const RunnerOptions& options) {
  return options.pooling ? 1 : model.vocab_size();
}

std::size_t logits_bytes(int vocab_size, int rows) {
  return static_cast<std::size_t>(rows) * vocab_size * sizeof(float);
}

}  // namespace

ModelRunner::ModelRunner(Device& device, Ops& ops, Model& model, KvMemory& memory,
                         const KvPlan& plan, const RunnerOptions& options, DraftModel* draft)
    : device_(device),
      ops_(ops),
      model_(model),
      memory_(memory),
      plan_(plan),
      options_(options),
      batch_(device, ops, plan.groups(), options.limits),
      sampler_(device, ops,
               {.max_num_seqs = options.limits.max_num_seqs,
                .max_drafts = options.limits.max_drafts,
                .max_rows = options.limits.max_samples(),
                .vocab_size = num_drawn_from(model, options),
                .verifies_drafts = options.draws_drafts,
                .seed = options.seed}),
      drafts_(draft == nullptr ? std::optional<DraftRunner>()
                               : std::optional<DraftRunner>(
                                     std::in_place, device, ops, *draft, batch_, options.limits,
                                     options.draws_drafts ? &sampler_ : nullptr)),
      workspace_(device.allocate(workspace_bytes(), MemoryPurpose::activations)),
      hidden_(device.allocate(hidden_bytes(model, options.limits.max_num_batched_tokens),
                              MemoryPurpose::activations)),
      sampled_hidden_(device.allocate(hidden_bytes(model, options.limits.max_samples()),
                                      MemoryPurpose::activations)),
      logits_(device.allocate(
          logits_bytes(num_drawn_from(model, options), options.limits.max_samples()),
          MemoryPurpose::logits)),
      prompt_logprobs_(device, ops, options.limits.max_num_seqs, num_drawn_from(model, options)) {
  if (drafts_) sampler_.lag_by(batch_.lost());
  if (drafts_ && options.draws_drafts)
    sampler_.verify_from(drafts_->shares(), drafts_->target_ids());
  if (options.line != nullptr)
    RankLine::check_fits(batch_.max_packed_bytes(), static_cast<std::size_t>(plan.num_blocks));
  for (InFlight& step : steps_) {
    step.done = device.create_event();
    step.tokens = device.allocate_host(options.limits.max_samples() * sizeof(std::int32_t),
                                       MemoryPurpose::step_inputs);
    if (options.pooling)
      step.pooled = device.allocate_host(hidden_bytes(model, num_pooled_rows()),
                                         MemoryPurpose::step_inputs);
  }
}

std::size_t ModelRunner::workspace_bytes() const {
  const std::size_t target =
      model_.workspace_bytes(options_.limits.max_num_batched_tokens, options_.limits.max_samples());
  return drafts_ ? std::max(target, drafts_->workspace_bytes()) : target;
}

void ModelRunner::zero(std::span<const BlockId> blocks) {
  if (blocks.empty()) return;
  memory_.zero_blocks(blocks, device_.stream());
  if (options_.line != nullptr) options_.line->post_step(RankMessage::Kind::zero, {}, blocks, {});
}

void ModelRunner::forward(const BatchPlan& plan, bool may_propose) {
  assert(num_in_flight_ < kMaxInFlight);
  may_propose_ = may_propose;
  InFlight& step = steps_[next_];
  step.plan = &plan;
  const StreamRef stream = device_.stream();
  memory_.zero_blocks(plan.zero_blocks, stream);
  const GraphShape shape = graph_shape(plan);
  const StepInputs& inputs = batch_.build(plan, shape, stream);
  if (options_.line != nullptr)
    options_.line->post_step(
        shape.num_rows > 0 ? RankMessage::Kind::replay : RankMessage::Kind::step, batch_.shape(),
        plan.zero_blocks, batch_.packed());
  compute(plan, inputs, shape);
  add_sampled_rows(plan, step);
  if (options_.pooling) take_hidden(plan, step, inputs);
  step.num_samples = inputs.num_samples;
  is_sampled_ = false;
  next_ = (next_ + 1) % kMaxInFlight;
  ++num_in_flight_;
}

// The graph that can run this plan. With an observer the logits buffer is not the draw's alone.
GraphShape ModelRunner::graph_shape(const BatchPlan& plan) const {
  if (plan.rows.empty() || observer_) return {};
  const int num_drafts = plan.rows.front().num_drafts;
  const bool is_uniform = std::ranges::all_of(plan.rows, [&](const BatchRow& row) {
    return row.samples && row.num_drafts == num_drafts && row.num_tokens == 1 + num_drafts;
  });
  if (is_uniform) {
    const auto shape = graphs_.shape_for(static_cast<int>(plan.rows.size()), num_drafts);
    if (shape.num_rows > 0) return shape;
  }
  return graphs_.mixed_shape_for(static_cast<int>(plan.rows.size()), plan.num_tokens);
}

ForwardContext ModelRunner::context(const StepInputs& inputs, int max_seq_len) {
  return {.ops = ops_,
          .stream = device_.stream(),
          .workspace = workspace_,
          .positions = inputs.positions,
          .query_start = inputs.query_start,
          .seq_lens = inputs.seq_lens,
          .max_query_len = inputs.max_query_len,
          .max_seq_len = max_seq_len,
          .groups = inputs.groups,
          .collectives = options_.collectives,
          .taps = drafts_ && may_propose_ ? drafts_->taps(inputs.num_tokens)
                                          : std::span<const StreamTap>()};
}

TensorView ModelRunner::hidden(std::int64_t rows) const {
  return TensorView(hidden_.data(), model_.dtype(), {rows, model_.hidden_size()});
}

TensorView ModelRunner::logits(std::int64_t rows) const {
  return TensorView(logits_.data(), DType::f32, {rows, model_.vocab_size()});
}

// From the uploaded arrays to the logits of the rows that sample.
void ModelRunner::compute(const BatchPlan& plan, const StepInputs& inputs,
                          const GraphShape& graph) {
  const Workspace::Scope scope(workspace_);
  ForwardContext context = this->context(inputs, inputs.max_seq_len);
  if (graph.num_rows > 0) {
    graphs_.replay(graph, context.stream);
    if (!graph.is_mixed()) return;
  } else {
    if (!options_.same_bits) context.host_rows = inputs.host_rows;
    compute_hidden(inputs, context);
  }
  if (options_.pooling) return;
  read_all_logits(plan, context);
  const int n = inputs.num_samples;
  if (n == 0) return;
  TensorView sampled = hidden(n);
  if (n < inputs.num_tokens) {
    sampled = TensorView(sampled_hidden_.data(), model_.dtype(), {n, model_.hidden_size()});
    ops_.gather_rows(sampled, hidden(inputs.num_tokens), inputs.sample_rows, context.stream);
  }
  if (options_.line != nullptr) options_.line->post(RankMessage::Kind::samples);
  model_.logits(logits(n), sampled, context);
}

void ModelRunner::compute_hidden(const StepInputs& inputs, const ForwardContext& context) {
  batch_.expand(context.stream);
  model_.forward(hidden(inputs.num_tokens), inputs.ids, context);
}

// What of it a graph has: all where every row samples behind each of its tokens, else up to the
// hidden states. Depends on nothing but device memory.
void ModelRunner::compute_graph(const StepInputs& inputs, const GraphShape& graph) {
  const Workspace::Scope scope(workspace_);
  const ForwardContext context = this->context(inputs, options_.limits.max_model_len);
  compute_hidden(inputs, context);
  if (graph.is_mixed()) return;
  model_.logits(logits(inputs.num_tokens), hidden(inputs.num_tokens), context);
}

void ModelRunner::add_sampled_rows(const BatchPlan& plan, InFlight& step) {
  // Among the drafts are those of rows that left the plan while it was made.
  sampler_.begin_step(std::min(plan.rows.size() + plan.drafts.size(),
                               static_cast<std::size_t>(options_.limits.max_samples())));
  step.rows.assign(plan.rows.size(), {});
  step.drafts = plan.drafts;
  find_drafts(step);
  if (reads_drafts(plan)) {
    drafted();
    take_drafts(step);
  }
  step.width = 1;
  int num_pooled = 0;
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    const BatchRow& row = plan.rows[r];
    if (row.is_new) sampler_.reset(row.slot);
    if (!row.samples) continue;
    if (options_.pooling) {
      step.rows[r] = {.sample = num_pooled++, .slot = row.slot};
      continue;
    }
    step.rows[r] = {.sample = sampler_.num_rows(),
                    .slot = row.slot,
                    .first_draft = row.first_draft,
                    .num_drafts = row.num_drafts};
    step.width = std::max(step.width, 1 + row.num_drafts);
    const int first = row.num_computed + row.num_tokens - row.num_drafts;
    const bool lags = batch_.lags(static_cast<int>(r));
    const std::span<const TokenId> all = step.drafts;
    const auto drafts = all.subspan(row.first_draft, row.num_drafts);
    for (int i = 0; i <= row.num_drafts; ++i) {
      const auto before = drafts.first(static_cast<std::size_t>(i));
      sampler_.add_row(row.slot, *row.request, first + i, before, row.num_drafts > 0);
      if (lags) sampler_.lag(static_cast<int>(r));
      if (!options_.draws_drafts || i == row.num_drafts) continue;
      const TokenId draft = drafts[static_cast<std::size_t>(i)];
      if (const int place = drafts_->place_of(row, first + i, draft); place >= 0)
        sampler_.verify_by(draft, place);
    }
  }
}

void ModelRunner::sample() {
  assert(num_in_flight_ > 0 && !is_sampled_);
  InFlight& step = steps_[(next_ + kMaxInFlight - 1) % kMaxInFlight];
  const StreamRef stream = device_.stream();
  is_sampled_ = true;
  if (!options_.pooling) {
    const TensorView tokens = batch_.sampled_tokens(step.num_samples);
    sampler_.sample(tokens, logits(step.num_samples), stream);
    if (step.num_samples > 0) share_draws(tokens);
    step.sampler_turn = sampler_.turn();
    if (step.num_samples > 0)
      device_.copy(step.tokens.data(), tokens.data(), tokens.bytes(), stream);
  }
  step.done->record(stream);
}

// Where steps overlap, the next one reads them before the host has them: on every rank.
void ModelRunner::share_draws(TensorView tokens) {
  if (options_.line == nullptr || device_.is_host_memory()) return;
  options_.line->post(RankMessage::Kind::draws);
  options_.collectives->broadcast(tokens, device_.stream());
}

// Logits of more than the sampled rows, for an observer or for prompts' log-probabilities: in
// pieces that fit the logits buffer.
void ModelRunner::read_all_logits(const BatchPlan& plan, const ForwardContext& context) {
  const TensorView all = hidden(options_.limits.max_num_batched_tokens);
  std::int64_t first = 0;
  for (const BatchRow& row : plan.rows) {
    const int prompt_tokens =
        PromptLogprobs::num_wanted(*row.request, row.num_computed, row.num_tokens);
    const int wanted = observer_ ? row.num_tokens : prompt_tokens;
    for (int done = 0; done < wanted;) {
      const int count = std::min(wanted - done, options_.limits.max_num_seqs);
      const TensorView piece = logits(count);
      if (options_.line != nullptr)
        options_.line->post_logits(static_cast<int>(first) + done,
                                   static_cast<int>(first) + done + count);
      model_.logits(piece, all.rows(first + done, first + done + count), context);
      const int position = row.num_computed + done;
      if (observer_) show_logits(row, position, piece, context.stream);
      if (const int of_prompt = std::min(count, prompt_tokens - done); of_prompt > 0) {
        prompt_logprobs_.add(*row.request, position, piece.rows(0, of_prompt), context.stream);
      }
      done += count;
    }
    first += row.num_tokens;
  }
}

void ModelRunner::show_logits(const BatchRow& row, int position, TensorView logits,
                              StreamRef stream) {
  std::vector<float> host(static_cast<std::size_t>(logits.numel()));
  device_.copy(host.data(), logits.data(), logits.bytes(), stream);
  // survives deletion: CUDA itself waits where the target is pageable; Device does not promise it
  device_.synchronize(stream);
  const auto width = static_cast<std::size_t>(logits.extent(1));
  for (std::int64_t i = 0; i < logits.extent(0); ++i) {
    observer_(row.request->id(), position + static_cast<int>(i),
              std::span(host).subspan(static_cast<std::size_t>(i) * width, width));
  }
}

StepTokens ModelRunner::collect() {
  assert(num_in_flight_ > 0);
  InFlight& step = steps_[(next_ + kMaxInFlight - num_in_flight_) % kMaxInFlight];
  --num_in_flight_;
  step.done->wait();
  if (options_.line != nullptr) options_.line->fate().check();  // without a rank there is no result
  take_drafts(step);
  collected_ = &step;
  const auto* tokens = static_cast<const std::int32_t*>(step.tokens.data());
  collected_tokens_.assign(step.rows.size() * static_cast<std::size_t>(step.width), -1);
  undrawn_.clear();
  if (options_.pooling) {
    pool(step);
    return {.sampled = collected_tokens_, .width = 1};
  }
  auto out = collected_tokens_.begin();
  for (std::size_t r = 0; r < step.rows.size(); ++r) {
    const SampledRow& row = step.rows[r];
    if (row.sample >= 0) {
      const int count = num_held(row, step.drafts, tokens + row.sample);
      std::copy_n(tokens + row.sample, count, out);
      if (TokenId& last = out[count - 1]; last == kNoToken) {
        last = 0;  // a token for whoever runs before the request ends
        undrawn_.push_back(step.plan->rows[r].request->id());
      }
      batch_.settle(row.slot, count - 1);
      if (row.num_drafts > 0) sampler_.accept(row.slot, {&*out, static_cast<std::size_t>(count)});
    }
    out += step.width;
  }
  return {.sampled = collected_tokens_, .width = step.width};
}

}  // namespace quire
