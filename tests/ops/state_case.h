#pragma once
// Cases of the recurrent operators: inputs, the plain recurrence, and a run on a backend.

#include <algorithm>
#include <cmath>
#include <span>

#include "tests/support/op_test.h"

namespace quire::test {

struct StateSteps {
  const char* name;
  std::vector<std::int64_t> tokens;  // of each request
  std::vector<std::int32_t> reads, writes;
  std::vector<std::int32_t> token_states = {};  // empty: none
};

struct StateResult {
  std::vector<double> out, state;
};

struct StateRun {
  HostTensor out, state;
};

inline constexpr std::int64_t kStateBlocks = 8;

// The views that say which block each request reads and writes.
struct StepViews {
  TensorView query_start, state_read, state_write, token_states;
};

inline StepViews upload_steps(OpRun& run, const StateSteps& steps) {
  std::vector<std::int32_t> starts = {0};
  for (const std::int64_t n : steps.tokens) {
    starts.push_back(starts.back() + static_cast<std::int32_t>(n));
  }
  return {run.upload(tensor_of(starts)), run.upload(tensor_of(steps.reads)),
          run.upload(tensor_of(steps.writes)),
          steps.token_states.empty() ? TensorView() : run.upload(tensor_of(steps.token_states))};
}

inline std::int64_t total_tokens(const StateSteps& steps) {
  std::int64_t n = 0;
  for (const std::int64_t t : steps.tokens) n += t;
  return n;
}

// Runs body(token, state of the request) in order; state has `size` numbers a block.
template <class F>
void for_each_token(const StateSteps& steps, std::vector<double>& blocks, std::size_t size,
                    F&& body) {
  const std::vector<double> before = blocks;
  std::int64_t token = 0;
  for (std::size_t r = 0; r < steps.tokens.size(); ++r) {
    std::vector<double> state(size);
    if (steps.reads[r] >= 0) {
      const auto from = before.begin() + static_cast<std::ptrdiff_t>(size) * steps.reads[r];
      state.assign(from, from + static_cast<std::ptrdiff_t>(size));
    }
    for (std::int64_t t = 0; t < steps.tokens[r]; ++t) body(token++, state);
    if (steps.writes[r] >= 0 && steps.tokens[r] > 0) {
      std::copy(state.begin(), state.end(),
                blocks.begin() + static_cast<std::ptrdiff_t>(size) * steps.writes[r]);
    }
  }
}

inline double softplus(double x) { return std::log1p(std::exp(x)); }

class ConvCase {
 public:
  static constexpr const char* kName = "causal_conv";
  struct Case {
    const char* name;
    DType dtype, state;
    std::int64_t channels, width;
    bool bias, silu;
    bool exact_state() const { return state == DType::f32 || state == dtype; }
    std::int64_t chunk(const OpsTraits&) const { return 1; }
  };
  static std::vector<Case> cases() {
    return {{"f32", DType::f32, DType::f32, 70, 4, true, true},
            {"bf16", DType::bf16, DType::bf16, 96, 4, false, true},
            {"no silu, two taps", DType::f32, DType::f32, 33, 2, true, false}};
  }

  ConvCase(const Case& c, const StateSteps& steps, unsigned seed) : c_(c), steps_(steps) {
    std::mt19937 rng(seed);
    x_ = random_tensor(rng, c.dtype, {total_tokens(steps), c.channels});
    w_ = random_tensor(rng, c.dtype, {c.channels, c.width}, 0.5f);
    bias_ = random_tensor(rng, c.dtype, {c.channels});
    state_ = random_tensor(rng, c.state, {kStateBlocks, c.width - 1, c.channels});
  }

  StateResult reference() const {
    StateResult result{{}, state_.values()};
    const auto size = static_cast<std::size_t>((c_.width - 1) * c_.channels);
    for_each_token(steps_, result.state, size, [&](std::int64_t t, std::vector<double>& state) {
      for (std::int64_t i = 0; i < c_.channels; ++i) {
        state.push_back(x_.at(t * c_.channels + i));
      }
      for (std::int64_t i = 0; i < c_.channels; ++i) {
        double y = c_.bias ? bias_.at(i) : 0.;
        for (std::int64_t k = 0; k < c_.width; ++k) {
          y += w_.at(i * c_.width + k) * state[static_cast<std::size_t>(k * c_.channels + i)];
        }
        result.out.push_back(c_.silu ? y / (1 + std::exp(-y)) : y);
      }
      state.erase(state.begin(), state.begin() + c_.channels);
    });
    return result;
  }

  StateRun run(OpRun& run, const StateSteps& steps, std::int64_t first,
               const HostTensor* state = nullptr) const {
    const StepViews views = upload_steps(run, steps);
    const std::int64_t count = total_tokens(steps);
    ConvArgs args;
    args.out = run.output(c_.dtype, {count, c_.channels});
    args.x = run.upload(x_).rows(first, first + count);
    args.weight = run.upload_constant(w_);
    if (c_.bias) args.bias = run.upload_constant(bias_);
    args.state = run.upload(state == nullptr ? state_ : *state);
    args.query_start = views.query_start;
    args.state_read = views.state_read;
    args.state_write = views.state_write;
    args.token_states = views.token_states;
    args.silu = c_.silu;
    run.ops().causal_conv(args, run.stream());
    return {run.download(args.out), run.download(args.state)};
  }

 private:
  Case c_;
  StateSteps steps_;
  HostTensor x_, w_, bias_, state_;
};

class DeltaCase {
 public:
  static constexpr const char* kName = "gated_delta_rule";
  struct Case {
    const char* name;
    DType dtype, state;
    std::int64_t key_heads, value_heads, key_dim, value_dim;
    bool exact_state() const { return state == DType::f32; }
    std::int64_t chunk(const OpsTraits& traits) const {
      return traits.state_chunk({dtype, key_dim, value_dim}).tokens;
    }
  };
  static std::vector<Case> cases() {
    return {{"f32", DType::f32, DType::f32, 2, 4, 16, 16},
            {"wide values", DType::f32, DType::f32, 1, 2, 32, 80},
            {"odd sizes", DType::f32, DType::f32, 1, 1, 12, 20},
            {"values that fill registers", DType::f32, DType::f32, 1, 2, 16, 144},
            {"bf16", DType::bf16, DType::f32, 2, 4, 32, 64},
            {"published sizes", DType::bf16, DType::f32, 1, 2, 128, 128},
            {"f16", DType::f16, DType::f32, 1, 1, 64, 40},
            {"bf16 state", DType::bf16, DType::bf16, 2, 2, 16, 32}};
  }

  DeltaCase(const Case& c, const StateSteps& steps, unsigned seed) : c_(c), steps_(steps) {
    std::mt19937 rng(seed);
    const std::int64_t tokens = total_tokens(steps);
    q_ = random_tensor(rng, c.dtype, {tokens, c.key_heads, c.key_dim});
    k_ = random_tensor(rng, c.dtype, {tokens, c.key_heads, c.key_dim});
    v_ = random_tensor(rng, c.dtype, {tokens, c.value_heads, c.value_dim});
    if (c.dtype == DType::f16) empty_key(std::min<std::int64_t>(63, tokens - 1));
    a_ = random_tensor(rng, c.dtype, {tokens, c.value_heads});
    b_ = random_tensor(rng, c.dtype, {tokens, c.value_heads});
    a_log_ = random_tensor(rng, DType::f32, {c.value_heads});
    dt_bias_ = random_tensor(rng, DType::f32, {c.value_heads});
    state_ =
        random_tensor(rng, c.state, {kStateBlocks, c.value_heads, c.key_dim, c.value_dim}, 0.3f);
  }

  StateResult reference() const {
    StateResult result{{}, state_.values()};
    const auto size = static_cast<std::size_t>(c_.value_heads * c_.key_dim * c_.value_dim);
    for_each_token(steps_, result.state, size, [&](std::int64_t t, std::vector<double>& state) {
      for (std::int64_t h = 0; h < c_.value_heads; ++h) {
        step(t, h,
             std::span(state).subspan(static_cast<std::size_t>(h * c_.key_dim * c_.value_dim)),
             result.out);
      }
    });
    return result;
  }

  StateRun run(OpRun& run, const StateSteps& steps, std::int64_t first,
               const HostTensor* state = nullptr) const {
    const StepViews views = upload_steps(run, steps);
    const std::int64_t count = total_tokens(steps);
    DeltaRuleArgs args;
    args.out = run.output(c_.dtype, {count, c_.value_heads, c_.value_dim});
    args.q = run.upload(q_).rows(first, first + count);
    args.k = run.upload(k_).rows(first, first + count);
    args.v = run.upload(v_).rows(first, first + count);
    args.a = run.upload(a_).rows(first, first + count);
    args.b = run.upload(b_).rows(first, first + count);
    args.a_log = run.upload(a_log_);
    args.dt_bias = run.upload(dt_bias_);
    args.state = run.upload(state == nullptr ? state_ : *state);
    args.query_start = views.query_start;
    args.state_read = views.state_read;
    args.state_write = views.state_write;
    args.token_states = views.token_states;
    args.max_query_len = static_cast<int>(*std::ranges::max_element(steps.tokens));
    run.ops().gated_delta_rule(args, run.stream());
    return {run.download(args.out), run.download(args.state)};
  }

 private:
  // Normed it is a thousand times as long, and what is written with it beyond f16: the last of a
  // chunk, which has not decayed.
  void empty_key(std::int64_t token) {
    for (std::int64_t i = 0; i < c_.key_heads * c_.key_dim; ++i)
      k_.set(token * c_.key_heads * c_.key_dim + i, 0);
    for (std::int64_t i = 0; i < c_.value_heads * c_.value_dim; ++i)
      v_.set(token * c_.value_heads * c_.value_dim + i, 300);
  }

  std::vector<double> unit(const HostTensor& x, std::int64_t at, double factor) const {
    std::vector<double> out;
    double squares = 1e-6;
    for (std::int64_t i = 0; i < c_.key_dim; ++i) {
      out.push_back(x.at(at * c_.key_dim + i));
      squares += out.back() * out.back();
    }
    for (double& v : out) v *= factor / std::sqrt(squares);
    return out;
  }

  void step(std::int64_t t, std::int64_t h, std::span<double> s, std::vector<double>& out) const {
    const std::int64_t at = t * c_.value_heads + h;
    const std::int64_t key = t * c_.key_heads + h / (c_.value_heads / c_.key_heads);
    const auto q = unit(q_, key, 1 / std::sqrt(static_cast<double>(c_.key_dim))),
               k = unit(k_, key, 1);
    const double decay = std::exp(-std::exp(a_log_.at(h)) * softplus(a_.at(at) + dt_bias_.at(h)));
    const double beta = 1 / (1 + std::exp(-b_.at(at)));
    for (std::int64_t v = 0; v < c_.value_dim; ++v) {
      double recalled = 0, y = 0;
      const auto cell = [&](std::int64_t i) -> double& {
        return s[static_cast<std::size_t>(i * c_.value_dim + v)];
      };
      for (std::int64_t i = 0; i < c_.key_dim; ++i) {
        cell(i) *= decay;
        recalled += cell(i) * k[static_cast<std::size_t>(i)];
      }
      const double delta = beta * (v_.at(at * c_.value_dim + v) - recalled);
      for (std::int64_t i = 0; i < c_.key_dim; ++i) {
        cell(i) += k[static_cast<std::size_t>(i)] * delta;
        y += cell(i) * q[static_cast<std::size_t>(i)];
      }
      out.push_back(y);
    }
  }

  Case c_;
  StateSteps steps_;
  HostTensor q_, k_, v_, a_, b_, a_log_, dt_bias_, state_;
};

class ScanCase {
 public:
  static constexpr const char* kName = "selective_scan";
  struct Case {
    const char* name;
    DType dtype, state;
    std::int64_t heads, groups, head_dim, state_dim;
    float dt_min, dt_max;
    bool exact_state() const { return state == DType::f32; }
    std::int64_t chunk(const OpsTraits& traits) const {
      return traits.state_chunk({dtype, state_dim, head_dim}).tokens;
    }
  };
  static std::vector<Case> cases() {
    return {{"f32", DType::f32, DType::f32, 8, 2, 16, 16, 0.f, 1e30f},
            {"limits on dt", DType::f32, DType::f32, 4, 1, 8, 32, 0.5f, 0.9f},
            {"odd sizes", DType::f32, DType::f32, 3, 3, 5, 21, 0.f, 1e30f},
            {"bf16", DType::bf16, DType::f32, 4, 2, 16, 128, 0.f, 1e30f},
            {"published sizes", DType::bf16, DType::f32, 2, 1, 64, 128, 0.f, 1e30f},
            {"f16", DType::f16, DType::f32, 2, 1, 80, 64, 0.f, 1e30f},
            {"a state longer than a chunk's", DType::bf16, DType::f32, 1, 1, 8, 136, 0.f, 1e30f},
            {"bf16 state", DType::bf16, DType::bf16, 2, 1, 8, 16, 0.f, 1e30f}};
  }

  ScanCase(const Case& c, const StateSteps& steps, unsigned seed) : c_(c), steps_(steps) {
    std::mt19937 rng(seed);
    const std::int64_t tokens = total_tokens(steps);
    x_ = random_tensor(rng, c.dtype, {tokens, c.heads, c.head_dim}, 0.5f);
    const float deviation = 1.f / std::sqrt(static_cast<float>(c.state_dim));
    b_ = random_tensor(rng, c.dtype, {tokens, c.groups, c.state_dim}, deviation);
    cs_ = random_tensor(rng, c.dtype, {tokens, c.groups, c.state_dim});
    dt_ = random_tensor(rng, c.dtype, {tokens, c.heads});
    a_log_ = random_tensor(rng, DType::f32, {c.heads});
    dt_bias_ = random_tensor(rng, DType::f32, {c.heads});
    skip_ = random_tensor(rng, DType::f32, {c.heads});
    state_ = random_tensor(rng, c.state, {kStateBlocks, c.heads, c.head_dim, c.state_dim}, 0.2f);
  }

  StateResult reference() const {
    StateResult result{{}, state_.values()};
    const auto size = static_cast<std::size_t>(c_.heads * c_.head_dim * c_.state_dim);
    for_each_token(steps_, result.state, size, [&](std::int64_t t, std::vector<double>& state) {
      for (std::int64_t h = 0; h < c_.heads; ++h) step(t, h, state, result.out);
    });
    return result;
  }

  StateRun run(OpRun& run, const StateSteps& steps, std::int64_t first,
               const HostTensor* state = nullptr) const {
    const StepViews views = upload_steps(run, steps);
    const std::int64_t count = total_tokens(steps);
    ScanArgs args;
    args.out = run.output(c_.dtype, {count, c_.heads, c_.head_dim});
    args.x = run.upload(x_).rows(first, first + count);
    args.b = run.upload(b_).rows(first, first + count);
    args.c = run.upload(cs_).rows(first, first + count);
    args.dt = run.upload(dt_).rows(first, first + count);
    args.a_log = run.upload(a_log_);
    args.dt_bias = run.upload(dt_bias_);
    args.d_skip = run.upload(skip_);
    args.state = run.upload(state == nullptr ? state_ : *state);
    args.query_start = views.query_start;
    args.state_read = views.state_read;
    args.state_write = views.state_write;
    args.token_states = views.token_states;
    args.max_query_len = static_cast<int>(*std::ranges::max_element(steps.tokens));
    args.dt_min = c_.dt_min;
    args.dt_max = c_.dt_max;
    run.ops().selective_scan(args, run.stream());
    return {run.download(args.out), run.download(args.state)};
  }

 private:
  void step(std::int64_t t, std::int64_t h, std::vector<double>& state,
            std::vector<double>& out) const {
    const std::int64_t group = t * c_.groups + h / (c_.heads / c_.groups);
    const double raw = softplus(dt_.at(t * c_.heads + h) + dt_bias_.at(h));
    const double dt =
        std::min(std::max(raw, static_cast<double>(c_.dt_min)), static_cast<double>(c_.dt_max));
    const double decay = std::exp(-std::exp(a_log_.at(h)) * dt);
    for (std::int64_t p = 0; p < c_.head_dim; ++p) {
      const double x = x_.at((t * c_.heads + h) * c_.head_dim + p);
      double y = skip_.at(h) * x;
      for (std::int64_t n = 0; n < c_.state_dim; ++n) {
        double& s = state[static_cast<std::size_t>((h * c_.head_dim + p) * c_.state_dim + n)];
        s = decay * s + dt * x * b_.at(group * c_.state_dim + n);
        y += s * cs_.at(group * c_.state_dim + n);
      }
      out.push_back(y);
    }
  }

  Case c_;
  StateSteps steps_;
  HostTensor x_, b_, cs_, dt_, a_log_, dt_bias_, skip_, state_;
};

}  // namespace quire::test
