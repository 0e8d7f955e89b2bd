#include "engine/runner/model_runner.h"

#include <algorithm>
#include <cassert>

namespace quire {
namespace {

std::size_t hidden_bytes(const Model& model, int rows) {
  return static_cast<std::size_t>(rows) * model.hidden_size() * size_of(model.dtype());
}

std::size_t logits_bytes(const Model& model, int rows) {
  return static_cast<std::size_t>(rows) * model.vocab_size() * sizeof(float);
}

std::size_t workspace_bytes(const Model& model, const BatchLimits& limits) {
  return model.workspace_bytes(limits.max_num_batched_tokens, limits.max_num_seqs);
}

}  // namespace

std::size_t ModelRunner::scratch_bytes(const Model& model, const BatchLimits& limits) {
  return workspace_bytes(model, limits) + hidden_bytes(model, limits.max_num_batched_tokens) +
         hidden_bytes(model, limits.max_num_seqs) + logits_bytes(model, limits.max_num_seqs);
}

ModelRunner::ModelRunner(Device& device, Ops& ops, Model& model, KvMemory& memory,
                         const KvPlan& plan, const RunnerOptions& options)
    : device_(device),
      ops_(ops),
      model_(model),
      memory_(memory),
      options_(options),
      batch_(device, ops, plan.groups(), options.limits,
             [&model](int num_prompt) { return model.position_offset(num_prompt); }),
      sampler_(device, ops,
               {.max_num_seqs = options.limits.max_num_seqs,
                .vocab_size = model.vocab_size(),
                .seed = options.seed}),
      workspace_(device.allocate(workspace_bytes(model, options.limits))),
      hidden_(device.allocate(hidden_bytes(model, options.limits.max_num_batched_tokens))),
      sampled_hidden_(device.allocate(hidden_bytes(model, options.limits.max_num_seqs))),
      logits_(device.allocate(logits_bytes(model, options.limits.max_num_seqs))),
      prompt_logprobs_(device, ops) {
  for (InFlight& step : steps_) {
    step.done = device.create_event();
    step.tokens = device.allocate_host(options.limits.max_num_seqs * sizeof(std::int32_t));
  }
}

void ModelRunner::launch(const BatchPlan& plan) {
  assert(num_in_flight_ < kMaxInFlight);
  InFlight& step = steps_[next_];
  const StreamRef stream = device_.stream();
  memory_.zero_blocks(plan.zero_blocks, stream);
  const StepInputs& inputs = batch_.build(plan, stream);
  add_sampled_rows(plan, step);

  const Workspace::Scope scope(workspace_);
  const ForwardContext context{.ops = ops_,
                               .stream = stream,
                               .workspace = workspace_,
                               .positions = inputs.positions,
                               .query_start = inputs.query_start,
                               .seq_lens = inputs.seq_lens,
                               .max_query_len = inputs.max_query_len,
                               .max_seq_len = inputs.max_seq_len,
                               .groups = inputs.groups};
  const TensorView hidden(hidden_.data(), model_.dtype(),
                          {inputs.num_tokens, model_.hidden_size()});
  model_.forward(hidden, inputs.ids, context);
  read_all_logits(plan, context);
  sample(inputs, context, step);
  step.done->record(stream);
  next_ = (next_ + 1) % kMaxInFlight;
  ++num_in_flight_;
}

void ModelRunner::add_sampled_rows(const BatchPlan& plan, InFlight& step) {
  sampler_.begin_step();
  step.sample_of_row.assign(plan.rows.size(), -1);
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    const BatchRow& row = plan.rows[r];
    if (row.is_new) sampler_.reset(row.slot);
    if (!row.samples) continue;
    step.sample_of_row[r] = sampler_.num_rows();
    sampler_.add_row(row.slot, *row.request, row.num_computed + row.num_tokens);
  }
}

void ModelRunner::sample(const StepInputs& inputs, const ForwardContext& context, InFlight& step) {
  const std::int64_t n = inputs.num_samples;
  const TensorView tokens = batch_.sampled_tokens(inputs.num_samples);
  const TensorView logits(logits_.data(), DType::f32, {n, model_.vocab_size()});
  if (n > 0) {
    const std::int64_t width = model_.hidden_size();
    const TensorView all(hidden_.data(), model_.dtype(), {inputs.num_tokens, width});
    TensorView hidden = all;
    if (n < inputs.num_tokens) {
      hidden = TensorView(sampled_hidden_.data(), model_.dtype(), {n, width});
      ops_.gather_rows(hidden, all, inputs.sample_rows, context.stream);
    }
    model_.logits(logits, hidden, context);
  }
  sampler_.sample(tokens, logits, context.stream);
  step.sampler_turn = sampler_.turn();
  if (n > 0) device_.copy(step.tokens.data(), tokens.data(), tokens.bytes(), context.stream);
}

// Logits of more than the sampled rows, for an observer or for prompts' log-probabilities: in
// pieces that fit the logits buffer.
void ModelRunner::read_all_logits(const BatchPlan& plan, const ForwardContext& context) {
  const std::int64_t width = model_.hidden_size();
  const TensorView hidden(hidden_.data(), model_.dtype(),
                          {options_.limits.max_num_batched_tokens, width});
  std::int64_t first = 0;
  for (const BatchRow& row : plan.rows) {
    const int prompt_tokens =
        PromptLogprobs::num_wanted(*row.request, row.num_computed, row.num_tokens);
    const int wanted = observer_ ? row.num_tokens : prompt_tokens;
    for (int done = 0; done < wanted;) {
      const int count = std::min(wanted - done, options_.limits.max_num_seqs);
      const TensorView logits(logits_.data(), DType::f32, {count, model_.vocab_size()});
      model_.logits(logits, hidden.rows(first + done, first + done + count), context);
      const int position = row.num_computed + done;
      if (observer_) show_logits(row, position, logits, context.stream);
      if (const int of_prompt = std::min(count, prompt_tokens - done); of_prompt > 0) {
        prompt_logprobs_.add(*row.request, position, logits.rows(0, of_prompt), context.stream);
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
  device_.synchronize(stream);
  const auto width = static_cast<std::size_t>(logits.extent(1));
  for (std::int64_t i = 0; i < logits.extent(0); ++i) {
    observer_(row.request->id(), position + static_cast<int>(i),
              std::span(host).subspan(static_cast<std::size_t>(i) * width, width));
  }
}

StepTokens ModelRunner::collect() {
  assert(num_in_flight_ > 0);
  const InFlight& step = steps_[(next_ + kMaxInFlight - num_in_flight_) % kMaxInFlight];
  --num_in_flight_;
  step.done->wait();
  collected_ = &step;
  const auto* tokens = static_cast<const std::int32_t*>(step.tokens.data());
  collected_tokens_.clear();
  for (const std::int32_t sample : step.sample_of_row) {
    collected_tokens_.push_back(sample < 0 ? -1 : tokens[sample]);
  }
  return {.sampled = collected_tokens_, .width = 1, .drafts = {}, .draft_width = 0};
}

void ModelRunner::warm_up() {
  const BatchLimits& limits = options_.limits;
  // A CPU has nothing to load ahead; a long prompt there would only take time.
  const int most = device_.is_host_memory() ? 8 : limits.max_num_batched_tokens;
  const int num_prompt =
      std::max(1, std::min({most, limits.max_num_batched_tokens, limits.max_model_len - 1}));
  RequestInit init;
  init.prompt.assign(num_prompt, 0);
  Request request(std::move(init));
  BatchPlan plan;
  plan.rows = {{.request = &request, .num_tokens = num_prompt, .is_new = true, .samples = true}};
  plan.num_tokens = num_prompt;
  for (int group = 0; group < batch_.tables().num_groups(); ++group) {
    const int count = batch_.tables().geometry(group).max_blocks;
    plan.block_updates.push_back({.row = 0, .group = group, .first = 0, .count = count});
    plan.block_ids.resize(std::max<std::size_t>(plan.block_ids.size(), count), 0);
  }
  launch(plan);
  request.append(collect().sampled[0]);
  plan.block_updates.clear();
  plan.rows[0] = {
      .request = &request, .num_computed = num_prompt, .num_tokens = 1, .samples = true};
  plan.num_tokens = 1;
  launch(plan);
  collect();
  const BlockId null_block = 0;
  memory_.zero_blocks({&null_block, 1}, device_.stream());
  device_.synchronize(device_.stream());
}

}  // namespace quire
