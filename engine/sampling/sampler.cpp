#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace quire {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

// SplitMix64: nearby seeds give unrelated streams.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

bool has_penalties(const SamplingParams& params) {
  return params.repetition_penalty != 1 || params.frequency_penalty != 0 ||
         params.presence_penalty != 0;
}

template <class T>
TensorView upload(StagedArray<T>& array, const std::vector<T>& values, StreamRef stream) {
  array.reserve(values.size());
  std::ranges::copy(values, array.write().begin());
  return array.upload(values.size(), stream);
}

std::size_t row_bytes(int max_num_seqs) {
  const auto n = static_cast<std::size_t>(max_num_seqs);
  return 6 * StagedPack::bytes_of<float>(n) + StagedPack::bytes_of<std::int32_t>(n) +
         StagedPack::bytes_of<std::uint64_t>(n) + StagedPack::bytes_of<std::int64_t>(n);
}

void grow(Buffer& buffer, std::size_t bytes, Device& device) {
  if (bytes > buffer.bytes()) buffer = device.allocate(bytes);
}

}  // namespace

Sampler::Sampler(Device& device, Ops& ops, const SamplerOptions& options)
    : device_(device),
      ops_(ops),
      options_(options),
      slots_(options.max_num_seqs),
      params_(options.max_num_seqs),
      pack_(device, 0, row_bytes(options.max_num_seqs)),
      bias_row_(device, 0),
      bias_token_(device, 0),
      seen_row_(device, 0),
      seen_token_(device, 0),
      seen_count_(device, 0),
      bias_value_(device, 0),
      logprob_row_(device, options.max_num_seqs) {}

void Sampler::reset(int slot) {
  params_[slot].reset();
  if (slots_[slot].num_counted == 0) return;
  slots_[slot].counts.clear();
  slots_[slot].num_counted = 0;
}

void Sampler::begin_step() {
  num_rows_ = 0;
  has_edits_ = false;
  bias_rows_.clear();
  bias_tokens_.clear();
  bias_values_.clear();
  penalized_.clear();
  logprob_rows_.clear();
  logprob_k_ = 0;
  pack_.begin();
  const auto n = static_cast<std::size_t>(options_.max_num_seqs);
  for (auto* array : {&rows_.temperature, &rows_.top_p, &rows_.min_p, &rows_.repetition,
                      &rows_.frequency, &rows_.presence})
    *array = pack_.add<float>(n);
  rows_.top_k = pack_.add<std::int32_t>(n);
  rows_.seed = pack_.add<std::uint64_t>(n);
  rows_.position = pack_.add<std::int64_t>(n);
}

Sampler::RowParams Sampler::params_of(const Request& request) const {
  const SamplingParams& params = request.sampling();
  return {.temperature = params.temperature,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .repetition = params.repetition_penalty,
          .frequency = params.frequency_penalty,
          .presence = params.presence_penalty,
          .top_k = params.top_k > 0 && params.top_k < options_.vocab_size ? params.top_k : 0,
          .seed = params.seed ? mix(*params.seed) : mix(options_.seed ^ mix(request.id().value)),
          .edits =
              !params.logit_bias.empty() || !params.allowed_tokens.empty() || params.min_tokens > 0,
          .penalties = has_penalties(params),
          .logprobs = params.logprobs.has_value()};
}

void Sampler::add_row(int slot, const Request& request, int position) {
  if (!params_[slot]) params_[slot] = params_of(request);
  const RowParams& params = *params_[slot];
  const int row = num_rows_++;
  rows_.temperature.host[row] = params.temperature;
  rows_.top_p.host[row] = params.top_p;
  rows_.min_p.host[row] = params.min_p;
  rows_.top_k.host[row] = params.top_k;
  rows_.seed.host[row] = params.seed;
  rows_.position.host[row] = position;
  rows_.repetition.host[row] = params.repetition;
  rows_.frequency.host[row] = params.frequency;
  rows_.presence.host[row] = params.presence;

  if (params.edits) add_edits(row, request, position);
  if (params.penalties) {
    count_tokens(slots_[slot], request);
    penalized_.push_back({row, slot});
    has_edits_ = true;
  }
  if (params.logprobs) {
    logprob_rows_.push_back(row);
    const int asked = *request.sampling().logprobs;
    const int k = asked < 0 ? options_.vocab_size : std::min(asked, options_.vocab_size);
    logprob_k_ = std::max({logprob_k_, 1, k});
  }
}

// Order as in vLLM: only allowed tokens, no end before min_tokens, then the bias.
void Sampler::add_edits(int row, const Request& request, int position) {
  const SamplingParams& params = request.sampling();
  const std::size_t before = bias_rows_.size();
  if (!params.allowed_tokens.empty()) {
    is_allowed_.assign(options_.vocab_size, 0);
    for (const TokenId token : params.allowed_tokens) is_allowed_[token] = 1;
    for (TokenId token = 0; token < options_.vocab_size; ++token) {
      if (is_allowed_[token] == 0) forbid(row, token);
    }
  }
  if (position - request.num_prompt() < params.min_tokens) {
    for (const TokenId token : params.stop_token_ids) forbid(row, token);
    if (!params.ignore_eos) {
      for (const TokenId token : request.eos_token_ids()) forbid(row, token);
    }
  }
  for (const auto& [token, bias] : params.logit_bias) {
    bias_rows_.push_back(row);
    bias_tokens_.push_back(token);
    bias_values_.push_back(bias);
  }
  has_edits_ = has_edits_ || bias_rows_.size() > before;
}

void Sampler::forbid(int row, TokenId token) {
  if (token < 0 || token >= options_.vocab_size) return;
  bias_rows_.push_back(row);
  bias_tokens_.push_back(token);
  bias_values_.push_back(kForbidden);
}

void Sampler::count_tokens(Slot& slot, const Request& request) {
  const auto tokens = request.tokens();
  for (; slot.num_counted < request.num_tokens(); ++slot.num_counted) {
    const TokenId token = tokens[slot.num_counted];
    if (slot.num_counted < request.num_prompt()) {
      slot.counts.add_prompt(token);
    } else {
      slot.counts.add_output(token);
    }
  }
}

void Sampler::sample(TensorView tokens, TensorView logits, StreamRef stream) {
  turn_ = 1 - turn_;
  results_[turn_].rows = {};
  if (num_rows_ == 0) return;
  if (!logprob_rows_.empty()) keep_raw_logits(logits, stream);
  pack_.upload(stream);
  if (has_edits_) ops_.edit_logits(logits, upload_edits(stream), stream);
  ops_.sample(tokens, logits, sampling_args(), stream);
  if (!logprob_rows_.empty()) compute_logprobs(tokens, stream);
}

SamplingArgs Sampler::sampling_args() const {
  return {.temperature = rows_.temperature.device.rows(0, num_rows_),
          .top_k = rows_.top_k.device.rows(0, num_rows_),
          .top_p = rows_.top_p.device.rows(0, num_rows_),
          .min_p = rows_.min_p.device.rows(0, num_rows_),
          .seed = rows_.seed.device.rows(0, num_rows_),
          .position = rows_.position.device.rows(0, num_rows_)};
}

LogitEdits Sampler::upload_edits(StreamRef stream) {
  LogitEdits edits;
  edits.repetition = rows_.repetition.device.rows(0, num_rows_);
  edits.frequency = rows_.frequency.device.rows(0, num_rows_);
  edits.presence = rows_.presence.device.rows(0, num_rows_);
  if (!bias_rows_.empty()) {
    edits.bias_row = upload(bias_row_, bias_rows_, stream);
    edits.bias_token = upload(bias_token_, bias_tokens_, stream);
    edits.bias_value = upload(bias_value_, bias_values_, stream);
  }
  std::size_t seen = 0;
  for (const auto [row, slot] : penalized_) seen += slots_[slot].counts.tokens().size();
  if (seen == 0) return edits;
  for (auto* array : {&seen_row_, &seen_token_, &seen_count_}) array->reserve(seen);
  auto rows = seen_row_.write().begin();
  auto tokens = seen_token_.write().begin();
  auto counts = seen_count_.write().begin();
  for (const auto [row, slot] : penalized_) {
    const TokenCounts& of_row = slots_[slot].counts;
    rows = std::fill_n(rows, of_row.tokens().size(), row);
    tokens = std::ranges::copy(of_row.tokens(), tokens).out;
    counts = std::ranges::copy(of_row.counts(), counts).out;
  }
  edits.seen_row = seen_row_.upload(seen, stream);
  edits.seen_token = seen_token_.upload(seen, stream);
  edits.seen_count = seen_count_.upload(seen, stream);
  return edits;
}

// What a model says before bias and penalties is what log-probabilities are of, as in vLLM.
void Sampler::keep_raw_logits(TensorView logits, StreamRef stream) {
  const auto rows = static_cast<std::int64_t>(logprob_rows_.size());
  const std::int64_t vocab = logits.extent(1);
  grow(raw_logits_, static_cast<std::size_t>(rows * vocab) * sizeof(float), device_);
  const TensorView asked = upload(logprob_row_, logprob_rows_, stream);
  ops_.gather_rows(TensorView(raw_logits_.data(), DType::f32, {rows, vocab}), logits, asked,
                   stream);
}

void Sampler::compute_logprobs(TensorView tokens, StreamRef stream) {
  const auto n = static_cast<std::int64_t>(logprob_rows_.size());
  const std::int64_t k = logprob_k_;
  LogprobBuffers& result = results_[turn_];
  result.row_of.assign(num_rows_, -1);
  for (std::int32_t i = 0; i < n; ++i) result.row_of[logprob_rows_[i]] = i;

  // One buffer: ids [n, k], values [n, k], chosen values [n], ranks [n]; all four bytes wide.
  const std::size_t bytes = static_cast<std::size_t>(2 * n * k + 2 * n) * 4;
  grow(result.on_device, bytes, device_);
  grow(chosen_tokens_, static_cast<std::size_t>(n) * 4, device_);
  auto* base = static_cast<float*>(result.on_device.data());
  const TensorView chosen(chosen_tokens_.data(), DType::i32, {n});
  ops_.gather_rows(chosen.reshape({n, 1}), tokens.reshape({tokens.extent(0), 1}),
                   logprob_row_.view(static_cast<std::size_t>(n)), stream);
  ops_.log_probs(TensorView(base, DType::i32, {n, k}), TensorView(base + n * k, DType::f32, {n, k}),
                 TensorView(base + 2 * n * k, DType::f32, {n}),
                 TensorView(base + 2 * n * k + n, DType::i32, {n}),
                 TensorView(raw_logits_.data(), DType::f32, {n, options_.vocab_size}), chosen,
                 stream);
  const void* on_host = base;
  if (!device_.is_host_memory()) {
    if (result.on_host.bytes() < bytes) result.on_host = device_.allocate_host(bytes);
    device_.copy(result.on_host.data(), base, bytes, stream);
    on_host = result.on_host.data();
  }
  const auto* ids = static_cast<const std::int32_t*>(on_host);
  const auto* values = static_cast<const float*>(on_host);
  const auto rows = static_cast<std::size_t>(n);
  const auto cells = static_cast<std::size_t>(n * k);
  result.rows = {.k = logprob_k_,
                 .top_ids = {ids, cells},
                 .top_values = {values + cells, cells},
                 .chosen_values = {values + 2 * cells, rows},
                 .ranks = {ids + 2 * cells + rows, rows},
                 .row_of = result.row_of};
}

}  // namespace quire
