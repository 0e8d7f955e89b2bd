#include "engine/runner/draft_runner.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace quire {
namespace {

constexpr auto kActivations = MemoryPurpose::activations;

std::size_t state_bytes(const DraftModel& model, int rows) {
  return static_cast<std::size_t>(rows) * model.hidden_size() * size_of(model.dtype());
}

std::size_t stream_bytes(const DraftModel& model, std::int64_t width, int rows) {
  return static_cast<std::size_t>(rows) * model.stream_layers().size() *
         static_cast<std::size_t>(width) * size_of(model.dtype());
}

std::size_t pack_bytes(const BatchLimits& limits, int num_tables, bool draws) {
  const auto ints = StagedPack::bytes_of<std::int32_t>;
  const auto rows = static_cast<std::size_t>(limits.max_num_seqs);
  const std::size_t per_row = ints(rows + 1) + 2 * ints(rows) + ints(rows * num_tables);
  const auto steps = static_cast<std::size_t>(std::max(limits.max_drafts - 1, 0));
  const std::size_t per_draft =
      StagedPack::bytes_of<std::int64_t>(rows) + StagedPack::bytes_of<std::int32_t>(rows);
  const std::size_t drawing = 3 * StagedPack::bytes_of<float>(rows) + ints(rows) +
                              StagedPack::bytes_of<std::uint64_t>(rows) +
                              static_cast<std::size_t>(limits.max_drafts) * per_draft;
  const std::size_t settling = 5 * ints(rows) + 2 * ints(2 * rows * (1 + steps));
  const std::size_t lags =
      2 * ints(static_cast<std::size_t>(limits.max_num_batched_tokens) + 2 * rows * (1 + steps));
  return (draws ? drawing : 0) + lags + 3 * ints(limits.max_num_batched_tokens) + 2 * ints(rows) +
         ints(rows + 1) + settling + per_row + steps * (2 * ints(rows) + per_row);
}

std::size_t shares_bytes(const BatchLimits& limits, int vocab_size) {
  return static_cast<std::size_t>(limits.max_num_seqs) * limits.max_drafts * vocab_size *
         sizeof(float);
}

}  // namespace

DraftRunner::DraftRunner(Device& device, Ops& ops, DraftModel& model, InputBatch& batch,
                         const BatchLimits& limits, const Sampler* sampler)
    : device_(device),
      ops_(ops),
      model_(model),
      batch_(batch),
      limits_(limits),
      width_(model.target_width()),
      pack_(device, MemoryPurpose::step_inputs, 0,
            pack_bytes(limits, batch.num_tables(), sampler != nullptr), kTurns),
      streams_(device.allocate(stream_bytes(model, width_, limits.max_num_batched_tokens),
                               kActivations)),
      states_(device.allocate(state_bytes(model, limits.max_num_batched_tokens), kActivations)),
      other_states_(
          device.allocate(state_bytes(model, limits.max_num_batched_tokens), kActivations)),
      step_states_{device.allocate(state_bytes(model, limits.max_num_seqs), kActivations),
                   device.allocate(state_bytes(model, limits.max_num_seqs), kActivations)},
      logits_(device.allocate(
          static_cast<std::size_t>(limits.max_num_seqs) * model.vocab_size() * sizeof(float),
          MemoryPurpose::logits)),
      own_ids_(
          device.allocate(limits.max_num_seqs * sizeof(std::int32_t), MemoryPurpose::step_inputs)),
      zeros_(device.allocate_zeroed(limits.max_num_seqs * sizeof(std::int64_t),
                                    MemoryPurpose::sampling)),
      sampler_(sampler),
      draft_ops_(sampler == nullptr ? nullptr : &draft_ops(ops)),
      drawn_(sampler == nullptr ? 0 : static_cast<std::size_t>(limits.max_num_seqs)),
      shares_(sampler == nullptr ? Buffer()
                                 : device.allocate(shares_bytes(limits, model.vocab_size()),
                                                   MemoryPurpose::logits)) {
  for (Buffer& drafts : host_drafts_)
    drafts = device.allocate_host(batch.drafts().bytes(), MemoryPurpose::step_inputs);
  for (auto& drafted : drafted_) drafted = device.create_event();
  lines_.reserve(limits.max_num_seqs);
  order_.reserve(limits.max_num_seqs);
  starts_.reserve(limits.max_num_seqs);
  steps_.reserve(limits.max_drafts);
  num_drafts_.reserve(limits.max_num_seqs);
  for (const int layer : model.stream_layers()) taps_.push_back({.layer = layer, .out = {}});
}

std::size_t DraftRunner::workspace_bytes() const {
  return model_.workspace_bytes(limits_.max_num_batched_tokens, limits_.max_num_seqs);
}

std::span<const StreamTap> DraftRunner::taps(int num_tokens) {
  const auto all = static_cast<std::int64_t>(taps_.size()) * width_;
  const TensorView streams(streams_.data(), model_.dtype(), {num_tokens, all});
  std::int64_t at = 0;
  for (StreamTap& tap : taps_) tap.out = streams.narrow(1, at, at + width_), at += width_;
  return taps_;
}

DraftRunner::Pass DraftRunner::add_pass(int num_rows, int num_tokens) {
  const auto ints = [&](int count) { return pack_.add<std::int32_t>(count); };
  Pass pass{.ids = {},
            .positions = ints(num_tokens),
            .query_start = ints(num_rows + 1),
            .seq_lens = ints(num_rows),
            .slots = ints(num_rows),
            .counts = ints(num_rows * batch_.num_tables()),
            .num_rows = num_rows,
            .num_tokens = num_tokens};
  pass.query_start.host[0] = 0;
  return pass;
}

void DraftRunner::fill_row(Pass& pass, int row, int token, const Line& line, int begin, int count) {
  for (int i = 0; i < count; ++i) pass.positions.host[token + i] = begin + i;
  pass.query_start.host[row + 1] = token + count;
  pass.seq_lens.host[row] = begin + count;
  pass.slots.host[row] = line.row->slot;
  for (int t = 0; t < batch_.num_tables(); ++t)
    pass.counts.host[t * pass.num_rows + row] = batch_.num_kernel_blocks(t, line.row->slot);
  pass.max_query_len = std::max(pass.max_query_len, count);
  pass.max_seq_len = std::max(pass.max_seq_len, begin + count);
}

void DraftRunner::add_first_pass(const GraphShape& whole) {
  const auto num_lines = static_cast<int>(lines_.size());
  const int num_rows = std::max(num_lines, whole.num_rows), length = 1 + whole.num_drafts;
  const int kept = num_lines > 0 ? lines_.back().last + 1 : 0;
  const int num_tokens = kept + (num_rows - num_lines) * length;
  const auto ints = [&](int count) { return pack_.add<std::int32_t>(count); };
  first_ = add_pass(num_rows, num_tokens);
  first_.ids = ints(num_tokens);
  kept_rows_ = ints(num_tokens);
  last_rows_ = ints(num_rows);
  last_lens_ = ints(num_rows);
  unit_starts_ = ints(num_rows + 1);
  starts_.clear();
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    const Line& line = lines_[i];
    const int token = line.last + 1 - line.count;
    const bool is_open = runs_ahead_ && line.first_draw >= 0;
    const int num_known = line.count - (is_open ? 1 + line.num_open : 0);
    fill_row(first_, static_cast<int>(i), token, line, line.begin, line.count);
    for (int t = 0; t < line.count; ++t) {
      if (t < num_known) first_.ids.host[token + t] = line.token_at(line.begin + t + 1);
      kept_rows_.host[token + t] = line.first + t;
    }
    last_rows_.host[i] = line.last;
    last_lens_.host[i] = line.begin + line.count;
    if (line.begin == 0) starts_.push_back(token);
  }
  for (int row = num_lines, token = kept; row < num_rows; ++row, token += length) {
    fill_padding(first_, row, length);
    for (int t = token; t < token + length; ++t) first_.ids.host[t] = kept_rows_.host[t] = 0;
    last_rows_.host[row] = token;
    last_lens_.host[row] = 1;
  }
  if (whole.num_rows > 0) first_.max_seq_len = limits_.max_model_len;
  std::iota(unit_starts_.host.begin(), unit_starts_.host.end(), 0);
}

// Draft j stands on what draft j − 1 gave, one position on. First in the pack: a graph's arrays
// always have the same addresses.
void DraftRunner::add_steps(const GraphShape& graph) {
  steps_.clear();
  for (int draft = 2; draft <= limits_.max_drafts; ++draft) {
    const int wanting = num_wanting(draft), num_rows = std::max(graph.num_rows, wanting);
    if (num_rows == 0) break;
    Pass& pass = steps_.emplace_back(add_pass(num_rows, num_rows));
    for (int i = 0; i < wanting; ++i)
      fill_row(pass, i, i, *order_[i], order_[i]->context() - 3 + draft, 1);
    for (int i = wanting; i < num_rows; ++i) fill_padding(pass, i);
    if (graph.num_rows > 0) pass.max_seq_len = limits_.max_model_len;
  }
  const auto num_rows = std::max<std::size_t>(order_.size(), graph.num_rows);
  wanting_ = pack_.add<std::int32_t>(num_rows);
  for (std::size_t i = 0; i < num_rows; ++i)
    wanting_.host[i] =
        i < order_.size() ? static_cast<std::int32_t>(order_[i] - lines_.data()) : 0;
}

// Further drafts, from what the first one stands on.
void DraftRunner::compute_steps(Workspace& workspace) {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const std::int64_t rows = steps_[i].num_rows;
    const TensorView from = view(step_states_[i % 2], rows);
    const TensorView to = view(step_states_[(i + 1) % 2], rows);
    compute(steps_[i], to, drafts_of(static_cast<int>(i), rows), from, {}, {}, workspace);
    draw(static_cast<int>(i) + 1, to, workspace);
  }
}

TensorView DraftRunner::view(const Buffer& buffer, std::int64_t rows) const {
  return TensorView(buffer.data(), model_.dtype(), {rows, model_.hidden_size()});
}

ForwardContext DraftRunner::context(Workspace& workspace) const {
  return {.ops = ops_,
          .stream = device_.stream(),
          .workspace = workspace,
          .positions = {},
          .query_start = {},
          .seq_lens = {},
          .max_query_len = 0,
          .max_seq_len = 0,
          .groups = {}};
}

void DraftRunner::compute(const Pass& pass, TensorView out, TensorView ids, TensorView states,
                          std::span<const int> starts, const LastTokens& last,
                          Workspace& workspace) {
  const TableRows rows{.slot = pass.slots.device,
                       .counts = pass.counts.device.reshape({batch_.num_tables(), pass.num_rows}),
                       .query_start = pass.query_start.device,
                       .seq_lens = pass.seq_lens.device};
  ForwardContext own = context(workspace);
  own.positions = pass.positions.device;
  own.query_start = pass.query_start.device;
  own.seq_lens = pass.seq_lens.device;
  own.max_query_len = pass.max_query_len;
  own.max_seq_len = pass.max_seq_len;
  own.groups = batch_.map_rows(rows, pass.num_rows, pass.num_tokens, own.stream);
  model_.forward(out, ids, states, starts, last, own);
}

// The best token of each row; ids of the target. From no numbers none is drawn: that ends the row's
// drafts, or is row 0 of target_ids, which will not hold.
void DraftRunner::draw(int index, TensorView states, Workspace& workspace) {
  const ForwardContext own = context(workspace);
  const std::int64_t rows = states.extent(0);
  const TensorView logits(logits_.data(), DType::f32, {rows, model_.vocab_size()});
  const auto zeros = [&](DType dtype) { return TensorView(zeros_.data(), dtype, {rows}); };
  const TensorView target_ids = model_.target_ids();
  const TensorView out = drafts_of(index, rows);
  const TensorView own_ids =
      target_ids.empty() ? out : TensorView(own_ids_.data(), DType::i32, {rows});
  model_.logits(logits, states, own);
  const auto shown = observer_ ? on_host<float>(logits) : std::vector<float>();
  if (sampler_ != nullptr) {
    draw_by_shares(index, logits, own_ids);
  } else {
    ops_.sample(own_ids, logits,
                {.temperature = zeros(DType::f32),
                 .top_k = zeros(DType::i32),
                 .top_p = zeros(DType::f32),
                 .min_p = zeros(DType::f32),
                 .seed = zeros(DType::u64),
                 .position = zeros(DType::i64)},
                own.stream);
  }
  if (!target_ids.empty())
    ops_.gather_rows(out.reshape({rows, 1}), target_ids, own_ids, own.stream);
  if (observer_) show(out, shown);
}

template <class T>
std::vector<T> DraftRunner::on_host(TensorView values) {
  std::vector<T> host(static_cast<std::size_t>(values.numel()));
  device_.copy(host.data(), values.data(), values.bytes(), device_.stream());
  // survives deletion: CUDA itself waits where the target is pageable; Device does not promise it
  device_.synchronize(device_.stream());
  return host;
}

void DraftRunner::show(TensorView drafts, std::span<const float> logits) {
  const auto tokens = on_host<std::int32_t>(drafts);
  const std::size_t vocab = logits.size() / tokens.size();
  for (std::size_t i = 0; i < tokens.size(); ++i)
    observer_({.request = order_[i]->row->request->id(),
               .context = order_[i]->context(),
               .draft = tokens[i],
               .logits = logits.subspan(i * vocab, vocab)});
}

std::span<const int> DraftRunner::run(const BatchPlan& plan, std::span<const TokenId> sampled,
                                      int width, std::span<const int> wanted,
                                      TensorView final_norm, Workspace& workspace) {
  const Workspace::Scope scope(workspace);
  const StreamRef stream = device_.stream();
  runs_ahead_ = width == 0;
  read(plan, sampled, width, wanted);
  count_drafts(plan);
  if (lines_.empty()) return num_drafts_;
  pack_.begin();
  const GraphShape whole = whole_shape(plan);
  const GraphShape graph = whole.num_rows > 0 ? whole : graph_shape();
  add_steps(graph);
  add_first_pass(whole);
  if (runs_ahead_) add_settling();
  if (sampler_ != nullptr) add_draws();
  const bool lags = runs_ahead_ && batch_.lags();
  if (lags) add_lags();
  pack_.upload(stream);
  if (lags) catch_up();
  if (whole.num_rows > 0) {
    whole_graphs_.replay(whole, stream);
    return give();
  }
  compute_first(plan.num_tokens, final_norm, !order_.empty(), workspace);
  if (order_.empty()) return give();
  if (graph.num_rows > 0) {
    graphs_.replay(graph, stream);
  } else {
    compute_steps(workspace);
  }
  return give();
}

// Over the step's tokens that the lines keep, and the first drafts.
void DraftRunner::compute_first(int num_tokens, TensorView final_norm, bool draws,
                                Workspace& workspace) {
  const StreamRef stream = device_.stream();
  const std::int64_t all = num_tokens, kept = first_.num_tokens;
  if (runs_ahead_) settle(num_tokens);
  TensorView states = view(states_, all), out = view(other_states_, kept);
  const TensorView streams(streams_.data(), model_.dtype(),
                           {all, static_cast<std::int64_t>(taps_.size()) * width_});
  model_.combine(states, taps_.empty() ? final_norm : streams, context(workspace));
  const bool keeps_all = kept == all && !runs_ahead_;
  if (!keeps_all) {
    ops_.gather_rows(out, states, kept_rows_.device, stream);
    states = std::exchange(out, view(states_, kept));
  }
  // Of tokens before the last ones it only keeps keys and values.
  const bool is_one_each = first_.num_tokens == first_.num_rows;
  const LastTokens last = is_one_each ? LastTokens()
                                      : LastTokens{last_rows_.device, unit_starts_.device,
                                                   runs_ahead_ ? last_lens_.device : TensorView()};
  out = out.rows(0, first_.num_rows);
  compute(first_, out, first_.ids.device, states, starts_, last, workspace);
  if (!draws) return;
  const TensorView from = view(step_states_[0], wanting_.device.extent(0));
  ops_.gather_rows(from, out, wanting_.device, stream);
  draw(0, from, workspace);
}

// Each line that wants drafts has a column of its own; what is there is the slot's until the next
// run.
void DraftRunner::count_drafts(const BatchPlan& plan) {
  num_drafts_.assign(plan.rows.size(), 0);
  for (std::size_t i = 0; i < order_.size(); ++i) {
    num_drafts_[static_cast<std::size_t>(order_[i]->plan_row)] = order_[i]->num_wanted;
    batch_.give_column(order_[i]->row->slot, static_cast<int>(i));
  }
}

TensorView DraftRunner::drafts_of(int index, std::int64_t rows) const {
  return batch_.drafts().rows(index, index + 1).reshape({limits_.max_num_seqs}).rows(0, rows);
}

std::span<const int> DraftRunner::give() {
  const TensorView drafts = batch_.drafts();
  turn_ = (turn_ + 1) % kTurns;
  if (!order_.empty())
    device_.copy(host_drafts_[turn_].data(), drafts.data(), drafts.bytes(), device_.stream());
  drafted_[turn_]->record(device_.stream());
  return num_drafts_;
}

void DraftRunner::wait() const { drafted_[turn_]->wait(); }

TokenId DraftRunner::draft_of(int turn, int column, int index) const {
  return static_cast<const std::int32_t*>(
      host_drafts_[turn].data())[index * limits_.max_num_seqs + column];
}

}  // namespace quire
