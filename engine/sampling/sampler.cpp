#include "engine/sampling/sampler.h"

#include <algorithm>
#include <bit>
#include <cassert>
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

// As vLLM does: below 1e-5 a division would overflow, below 0.01 f32 draws the largest anyway.
float sampled_temperature(float temperature) {
  constexpr float kGreedyBelow = 1e-5f, kLeast = 0.01f;
  return temperature < kGreedyBelow ? 0.f : std::max(temperature, kLeast);
}

int rows_of(const SamplerOptions& options) {
  return options.max_rows > 0 ? options.max_rows : options.max_num_seqs;
}

std::size_t row_bytes(const SamplerOptions& options) {
  const auto n = static_cast<std::size_t>(rows_of(options));
  const std::size_t verified =
      options.verifies_drafts ? 3 * StagedPack::bytes_of<std::int32_t>(n) : 0;
  const std::size_t lags = options.max_drafts > 0 ? 2 * StagedPack::bytes_of<std::int32_t>(n) : 0;
  return lags + verified + 6 * StagedPack::bytes_of<float>(n) +
         StagedPack::bytes_of<std::int32_t>(n) + StagedPack::bytes_of<std::uint64_t>(n) +
         StagedPack::bytes_of<std::int64_t>(n);
}

}  // namespace

Sampler::Sampler(Device& device, Ops& ops, const SamplerOptions& options)
    : ops_(ops),
      options_(options),
      params_(options.max_num_seqs),
      pack_(device, MemoryPurpose::sampling, 0, row_bytes(options)),
      pieces_(device, rows_of(options), options.vocab_size),
      penalties_(device, options.max_num_seqs, rows_of(options), options.max_drafts,
                 options.vocab_size),
      masks_(device, options.max_num_seqs, rows_of(options), options.vocab_size),
      logprobs_(device, ops, rows_of(options), options.vocab_size) {}

void Sampler::reset(int slot) {
  params_[slot].reset();
  penalties_.reset(slot);
  masks_.reset(slot);
}

void Sampler::begin_step(std::size_t max_rows) {
  num_rows_ = 0;
  num_drawn_ = num_lagging_ = 0;
  bias_.begin_step();
  penalties_.begin_step();
  masks_.begin_step();
  logprobs_.begin_step();
  pack_.begin();
  for (auto* array : {&rows_.temperature, &rows_.top_p, &rows_.min_p, &rows_.repetition,
                      &rows_.frequency, &rows_.presence})
    *array = pack_.add<float>(max_rows);
  rows_.top_k = pack_.add<std::int32_t>(max_rows);
  rows_.seed = pack_.add<std::uint64_t>(max_rows);
  rows_.position = pack_.add<std::int64_t>(max_rows);
  if (options_.max_drafts > 0)
    for (auto* array : {&rows_.lag_at, &rows_.lag_line}) *array = pack_.add<std::int32_t>(max_rows);
  if (!options_.verifies_drafts) return;
  for (auto* array : {&rows_.verified, &rows_.drafts, &rows_.places})
    *array = pack_.add<std::int32_t>(max_rows);
}

Sampler::RowParams Sampler::params_of(const Request& request) const {
  const SamplingParams& params = request.sampling();
  return {.temperature = sampled_temperature(params.temperature),
          .top_p = params.top_p,
          .min_p = params.min_p,
          .repetition = params.repetition_penalty,
          .frequency = params.frequency_penalty,
          .presence = params.presence_penalty,
          .top_k = params.top_k > 0 && params.top_k < options_.vocab_size ? params.top_k : 0,
          .seed = params.seed ? mix(*params.seed) : mix(options_.seed ^ mix(request.id().value)),
          .edits = !params.logit_bias.empty() || params.min_tokens > 0,
          .masks = TokenMasks::concern(params),
          .penalties = has_penalties(params),
          .logprobs = params.logprobs.has_value()};
}

DrawParams Sampler::draw_params(const Request& request) const {
  const RowParams params = params_of(request);
  return {.temperature = params.temperature,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .top_k = params.top_k,
          .seed = params.seed};
}

bool Sampler::reads_drafts(const SamplingParams& params) {
  return TokenMasks::concern(params) || has_penalties(params);
}

void Sampler::verify_from(TensorView shares, TensorView target_ids) {
  draft_ops_ = &draft_ops(ops_);
  draft_shares_ = shares;
  draft_ids_ = target_ids;
}

void Sampler::verify_by(TokenId draft, int place) {
  rows_.verified.host[num_drawn_] = num_rows_ - 1;
  rows_.drafts.host[num_drawn_] = draft;
  rows_.places.host[num_drawn_++] = place;
}

// A position is not negative and does not become so: its low word is one more number.
void Sampler::lag(int line) {
  static_assert(std::endian::native == std::endian::little);
  constexpr int kWords = sizeof(std::int64_t) / sizeof(std::int32_t);
  rows_.lag_at.host[num_lagging_] = kWords * (pack_.index_of(rows_.position) + num_rows_ - 1);
  rows_.lag_line.host[num_lagging_++] = line;
}

void Sampler::catch_up(StreamRef stream) {
  const std::size_t numbers = pack_.bytes() / sizeof(std::int32_t);
  draft_ops(ops_).lag_numbers(
      pack_.whole<std::int32_t>(numbers), rows_.lag_at.device.rows(0, num_lagging_),
      rows_.lag_line.device.rows(0, num_lagging_), lost_, stream);
}

void Sampler::verify_drawn(TensorView logits, StreamRef stream) {
  draft_ops_->verify_drafts(logits,
                            {.rows = rows_.verified.device.rows(0, num_drawn_),
                             .drafts = rows_.drafts.device.rows(0, num_drawn_),
                             .places = rows_.places.device.rows(0, num_drawn_),
                             .shares = draft_shares_,
                             .target_ids = draft_ids_,
                             .sampling = sampling_args()},
                            stream);
}

void Sampler::add_row(int slot, const Request& request, int position,
                      std::span<const TokenId> drafts, bool is_verified) {
  if (!params_[slot]) params_[slot] = params_of(request);
  const RowParams& params = *params_[slot];
  const int row = num_rows_++;
  assert(static_cast<std::size_t>(row) < rows_.temperature.host.size());
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
  if (params.masks) masks_.add_row(row, slot, request, drafts);
  if (params.penalties) penalties_.add_row({row, slot, drafts, is_verified}, request, position);
  if (params.logprobs) logprobs_.add_row(row, *request.sampling().logprobs);
}

// No end before min_tokens, then the bias, as in vLLM. A constraint's mask has the end in it.
void Sampler::add_edits(int row, const Request& request, int position) {
  const SamplingParams& params = request.sampling();
  if (position - request.num_prompt() < params.min_tokens && !params.constraint) {
    for (const TokenId token : params.stop_token_ids) forbid(row, token);
    if (!params.ignore_eos) {
      for (const TokenId token : request.eos_token_ids()) forbid(row, token);
    }
  }
  for (const auto& [token, bias] : params.logit_bias) bias_.add(row, token, bias);
}

void Sampler::forbid(int row, TokenId token) {
  if (token >= 0 && token < options_.vocab_size) bias_.add(row, token, kForbidden);
}

void Sampler::sample(TensorView tokens, TensorView logits, StreamRef stream) {
  turn_ = 1 - turn_;
  logprobs_.forget(turn_);
  if (num_rows_ == 0) return;
  if (!logprobs_.empty()) logprobs_.keep(logits, stream);
  pack_.upload(stream);
  if (num_lagging_ > 0) catch_up(stream);
  if (!masks_.empty()) masks_.apply(ops_, logits, stream);
  if (!bias_.empty()) bias_.apply(ops_, pieces_, logits, stream);
  if (!penalties_.empty()) {
    penalties_.apply(ops_, pieces_, logits,
                     {.repetition = rows_.repetition.device.rows(0, num_rows_),
                      .frequency = rows_.frequency.device.rows(0, num_rows_),
                      .presence = rows_.presence.device.rows(0, num_rows_)},
                     stream);
  }
  if (num_drawn_ > 0) verify_drawn(logits, stream);
  ops_.sample(tokens, logits, sampling_args(), stream);
  if (!penalties_.empty()) penalties_.count(ops_, tokens, stream);
  if (!logprobs_.empty()) logprobs_.compute(tokens, turn_, stream);
  // What they drew was counted anyway: their counts are sent again.
  for (const auto& row : masks_.late()) reset(row.slot);
}

SamplingArgs Sampler::sampling_args() const {
  return {.temperature = rows_.temperature.device.rows(0, num_rows_),
          .top_k = rows_.top_k.device.rows(0, num_rows_),
          .top_p = rows_.top_p.device.rows(0, num_rows_),
          .min_p = rows_.min_p.device.rows(0, num_rows_),
          .seed = rows_.seed.device.rows(0, num_rows_),
          .position = rows_.position.device.rows(0, num_rows_)};
}

}  // namespace quire
