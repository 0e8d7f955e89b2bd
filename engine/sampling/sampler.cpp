#include "engine/sampling/sampler.h"

#include <algorithm>
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

std::size_t row_bytes(int max_num_seqs) {
  const auto n = static_cast<std::size_t>(max_num_seqs);
  return 6 * StagedPack::bytes_of<float>(n) + StagedPack::bytes_of<std::int32_t>(n) +
         StagedPack::bytes_of<std::uint64_t>(n) + StagedPack::bytes_of<std::int64_t>(n);
}

}  // namespace

Sampler::Sampler(Device& device, Ops& ops, const SamplerOptions& options)
    : ops_(ops),
      options_(options),
      slots_(options.max_num_seqs),
      params_(options.max_num_seqs),
      pack_(device, MemoryPurpose::sampling, 0, row_bytes(options.max_num_seqs)),
      editor_(device, ops, options.max_num_seqs, options.vocab_size),
      logprobs_(device, ops, options.max_num_seqs, options.vocab_size) {}

void Sampler::reset(int slot) {
  params_[slot].reset();
  if (slots_[slot].num_counted == 0) return;
  slots_[slot].counts.clear();
  slots_[slot].num_counted = 0;
}

void Sampler::begin_step(std::size_t max_rows) {
  num_rows_ = 0;
  editor_.begin_step();
  logprobs_.begin_step();
  pack_.begin();
  for (auto* array : {&rows_.temperature, &rows_.top_p, &rows_.min_p, &rows_.repetition,
                      &rows_.frequency, &rows_.presence})
    *array = pack_.add<float>(max_rows);
  rows_.top_k = pack_.add<std::int32_t>(max_rows);
  rows_.seed = pack_.add<std::uint64_t>(max_rows);
  rows_.position = pack_.add<std::int64_t>(max_rows);
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
  if (params.penalties) {
    count_tokens(slots_[slot], request);
    editor_.add_seen(row, slots_[slot].counts);
  }
  if (params.logprobs) logprobs_.add_row(row, *request.sampling().logprobs);
}

// Order as in vLLM: only allowed tokens, no end before min_tokens, then the bias.
void Sampler::add_edits(int row, const Request& request, int position) {
  const SamplingParams& params = request.sampling();
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
  for (const auto& [token, bias] : params.logit_bias) editor_.add_bias(row, token, bias);
}

void Sampler::forbid(int row, TokenId token) {
  if (token >= 0 && token < options_.vocab_size) editor_.add_bias(row, token, kForbidden);
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
  logprobs_.forget(turn_);
  if (num_rows_ == 0) return;
  if (!logprobs_.empty()) logprobs_.keep(logits, stream);
  pack_.upload(stream);
  if (!editor_.empty()) {
    editor_.apply(logits,
                  {.repetition = rows_.repetition.device.rows(0, num_rows_),
                   .frequency = rows_.frequency.device.rows(0, num_rows_),
                   .presence = rows_.presence.device.rows(0, num_rows_)},
                  stream);
  }
  ops_.sample(tokens, logits, sampling_args(), stream);
  if (!logprobs_.empty()) logprobs_.compute(tokens, turn_, stream);
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
