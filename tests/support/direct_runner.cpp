#include "tests/support/direct_runner.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace quire {

// The host's arrays of a step; CPU tensors point into them.
struct DirectRunner::StepArrays {
  std::vector<std::int32_t> ids, positions, query_start{0}, seq_lens, table;
  std::vector<std::int32_t> state_read, state_write;
  std::vector<std::int64_t> slots;
  int max_query_len = 0, max_seq_len = 0;
};

namespace {

constexpr int kAttentionGroup = 0, kStateGroup = 1;

template <class T>
TensorView view(std::vector<T>& values) {
  return {values.data(), dtype_of<T>, {static_cast<std::int64_t>(values.size())}};
}

}  // namespace

DirectRunner::DirectRunner(Model& model, Device& device, Ops& ops, const DirectOptions& options)
    : model_(model),
      device_(device),
      ops_(ops),
      options_(options),
      workspace_(device.allocate(
          model.workspace_bytes(options.max_step_tokens, options.max_step_tokens) + 64)),
      random_(options.seed) {
  std::vector<LayerCache> layers;
  for (LayerKvSpec& layer :
       model.kv_specs({.cache_dtype = options.cache_dtype.value_or(options.dtype),
       .conv_state_dtype = options.dtype})) {
    layer.spec.block_size = options.block_size;
    const bool state = layer.spec.kind == KvKind::mamba;
    const std::size_t page = page_bytes(layer.spec) + (state ? 0 : options.page_padding);
    pools_.push_back(device.allocate(page * static_cast<std::size_t>(options.num_blocks)));
    // NaN wherever nothing was written: reading it shows.
    std::memset(pools_.back().data(), 0xff, pools_.back().bytes());
    layers.push_back({.base = pools_.back().data(),
                      .num_blocks = options.num_blocks,
                      .page_bytes = page,
                      .block_size = options.block_size,
                      .kernel_block_size = options.kernel_block_size,
                      .spec = layer.spec,
                      .group = state ? kStateGroup : kAttentionGroup});
  }
  model.bind_cache(layers);
  for (BlockId b = 0; b < options.num_blocks; ++b) free_.push_back(b);
  std::shuffle(free_.begin(), free_.end(), random_);
}

int DirectRunner::add_request(int num_prompt_tokens) {
  requests_.push_back({.offset = model_.position_offset(num_prompt_tokens), .blocks = {}});
  return static_cast<int>(requests_.size()) - 1;
}

void DirectRunner::finish(int request) {
  Request& r = requests_[static_cast<std::size_t>(request)];
  free_.insert(free_.end(), r.blocks.begin(), r.blocks.end());
  if (r.state >= 0) free_.push_back(r.state);
  r = {.blocks = {}};
  std::shuffle(free_.begin(), free_.end(), random_);
}

BlockId DirectRunner::take_block() {
  assert(!free_.empty());
  const BlockId block = free_.back();
  free_.pop_back();
  return block;
}

void DirectRunner::grow(Request& request, int tokens) {
  request.num_tokens += tokens;
  while (static_cast<int>(request.blocks.size()) * options_.block_size < request.num_tokens) {
    request.blocks.push_back(take_block());
  }
}

void DirectRunner::add_row(const Work& work, StepArrays& a) {
  Request& r = requests_[static_cast<std::size_t>(work.request)];
  const int before = r.num_tokens, count = static_cast<int>(work.tokens.size());
  const int ratio = options_.block_size / options_.kernel_block_size;
  grow(r, count);
  for (int i = 0; i < count; ++i) {
    const int position = before + i;
    a.ids.push_back(work.tokens[static_cast<std::size_t>(i)]);
    a.positions.push_back(position + r.offset);
    const BlockId block = r.blocks[static_cast<std::size_t>(position / options_.block_size)];
    a.slots.push_back(std::int64_t{block} * options_.block_size + position % options_.block_size);
  }
  a.query_start.push_back(static_cast<std::int32_t>(a.ids.size()));
  a.seq_lens.push_back(r.num_tokens);
  a.max_query_len = std::max(a.max_query_len, count);
  a.max_seq_len = std::max(a.max_seq_len, r.num_tokens);
  const std::size_t row = a.table.size();
  a.table.resize(row + static_cast<std::size_t>(options_.num_blocks * ratio), 0);
  for (std::size_t i = 0; i < r.blocks.size() * static_cast<std::size_t>(ratio); ++i) {
    a.table[row + i] = r.blocks[i / ratio] * ratio + static_cast<int>(i % ratio);
  }
  a.state_read.push_back(r.state);
  if (r.state < 0 || options_.move_state) {
    const BlockId old = r.state;
    r.state = take_block();
    if (old >= 0) free_.insert(free_.begin(), old);
  }
  a.state_write.push_back(r.state);
}

std::vector<float> DirectRunner::step(const std::vector<Work>& work) {
  StepArrays a;
  for (const Work& w : work) add_row(w, a);
  const auto rows = static_cast<std::int64_t>(work.size());
  const auto tokens = static_cast<std::int64_t>(a.ids.size());
  const TensorView table(a.table.data(), DType::i32,
                         {rows, static_cast<std::int64_t>(a.table.size()) / rows});
  const GroupInputs groups[] = {
      {.block_table = table, .slots = view(a.slots), .state_read = {}, .state_write = {}},
      {.block_table = {},
       .slots = {},
       .state_read = view(a.state_read),
       .state_write = view(a.state_write)}};
  const ForwardContext context{.ops = ops_,
                               .stream = device_.stream(),
                               .workspace = workspace_,
                               .positions = view(a.positions),
                               .query_start = view(a.query_start),
                               .seq_lens = view(a.seq_lens),
                               .max_query_len = a.max_query_len,
                               .max_seq_len = a.max_seq_len,
                               .groups = groups,
                               .host_rows = options_.same_bits
                                                ? HostRows()
                                                : HostRows{a.query_start, a.seq_lens}};
  const std::int64_t width = model_.hidden_size(), vocab = model_.vocab_size();
  const Buffer buffer =
      device_.allocate(static_cast<std::size_t>(tokens * width) * size_of(model_.dtype()));
  const TensorView hidden(buffer.data(), model_.dtype(), {tokens, width});
  std::vector<float> logits(static_cast<std::size_t>(tokens * vocab));
  model_.forward(hidden, view(a.ids), context);
  model_.logits(TensorView(logits.data(), DType::f32, {tokens, vocab}), hidden, context);
  device_.synchronize(device_.stream());
  return logits;
}

}  // namespace quire
