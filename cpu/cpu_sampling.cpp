// Draws and log-probabilities. Rows are independent; the passes over a whole row are
// the kernels', what is left after filtering is small.

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "backend/no_token.h"
#include "backend/philox.h"
#include "cpu/operators.h"

namespace quire::cpu {
namespace {

constexpr std::int64_t kDrawWork = 16;  // element operations per vocabulary entry of a draw
constexpr std::int64_t kMaxHeap = 1024;

struct Candidate {
  float logit;
  std::int32_t token;
};

// Best first; equal ones in the order of the vocabulary.
bool better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// What a thread keeps for the rows it works on.
struct RowScratch {
  std::vector<Candidate> candidates;
  std::vector<float> copy;
};

RowScratch& row_scratch() {
  thread_local RowScratch scratch;
  return scratch;
}

// Counted, not searched for: the loop without an exit is the one that compilers make wide.
bool has_nan(std::span<const float> row) {
  std::uint32_t count = 0;
  for (const float x : row) count += x != x;
  return count > 0;
}

std::int32_t first_with(std::span<const float> row, float value) {
  const auto at = std::find(row.begin(), row.end(), value);
  return at == row.end() ? 0 : static_cast<std::int32_t>(at - row.begin());
}

// The k best of a row, best first.
void find_best(std::span<const float> row, std::int64_t k, std::vector<Candidate>& best) {
  best.clear();
  for (std::size_t i = 0; i < row.size(); ++i) {
    const Candidate c{row[i], static_cast<std::int32_t>(i)};
    if (static_cast<std::int64_t>(best.size()) == k) {
      if (!better(c, best.front())) continue;
      std::pop_heap(best.begin(), best.end(), better);
      best.pop_back();
    }
    best.push_back(c);
    std::push_heap(best.begin(), best.end(), better);
  }
  std::sort_heap(best.begin(), best.end(), better);
}

// The k-th largest logit: what top_k keeps is not below it, so ties with it stay (as in vLLM).
float kth_largest(std::span<const float> row, std::int64_t k, RowScratch& scratch) {
  if (k <= kMaxHeap) {
    find_best(row, k, scratch.candidates);
    return scratch.candidates.back().logit;
  }
  scratch.copy.assign(row.begin(), row.end());
  const auto at = scratch.copy.begin() + (k - 1);
  std::nth_element(scratch.copy.begin(), at, scratch.copy.end(), std::greater<>());
  return *at;
}

struct Filter {
  std::int64_t top_k;
  float top_p, min_p;
};

// What min_p and top_k leave: a threshold on scaled logits.
float threshold_of(std::span<const float> row, const Filter& filter, float top,
                   RowScratch& scratch) {
  float threshold = -std::numeric_limits<float>::max();  // −inf is forbidden anyway
  if (filter.min_p > 0.f) threshold = std::max(threshold, top + std::log(filter.min_p));
  const auto size = static_cast<std::int64_t>(row.size());
  if (filter.top_k > 0 && filter.top_k < size) {
    threshold = std::max(threshold, kth_largest(row, filter.top_k, scratch));
  }
  return threshold;
}

// Cuts candidates to the smallest set of the best that reaches top_p of their mass. The entries
// whose shares are below (1 − p) / n have no more than 1 − p together: they are out without being
// sorted.
void keep_nucleus(std::vector<Candidate>& candidates, float top_p, float top) {
  double total = 0;
  for (const Candidate& c : candidates) total += std::exp(c.logit - top);
  const double negligible = (1.0 - top_p) * total / static_cast<double>(candidates.size());
  std::erase_if(candidates, [&](const Candidate& c) {
    return c.logit != top && std::exp(c.logit - top) < negligible;
  });
  std::sort(candidates.begin(), candidates.end(), better);
  double before = 0;
  std::size_t kept = 0;
  while (kept < candidates.size() && (kept == 0 || before < top_p * total)) {
    before += std::exp(candidates[kept++].logit - top);
  }
  candidates.resize(kept);
}

struct Draw {
  std::uint64_t seed;
  std::int64_t position;
};

// The largest logit + noise; entries that no noise could lift to the top are passed over.
std::int32_t race(std::span<const Candidate> candidates, const Draw& draw) {
  const auto score = [&](const Candidate& c) {
    return c.logit + gumbel_noise(draw.seed, draw.position, c.token);
  };
  const auto favourite = std::min_element(candidates.begin(), candidates.end(), better);
  std::int32_t winner = favourite->token;
  float best = score(*favourite);
  for (const Candidate& c : candidates) {
    if (c.logit + kGumbelBound < best) continue;
    const float s = score(c);
    if (s > best || (s == best && c.token < winner)) {
      best = s;
      winner = c.token;
    }
  }
  return winner;
}

std::int32_t draw_token(std::span<float> row, float top, const Filter& filter, const Draw& draw) {
  RowScratch& scratch = row_scratch();
  const float threshold = threshold_of(row, filter, top, scratch);
  std::vector<Candidate>& candidates = scratch.candidates;
  candidates.clear();
  // Without top_p, what lies further below the top than the noise reaches cannot be drawn: the
  // top's own noise is above −4 but for one draw in 10²³, and then race() still has it.
  const bool whole = filter.top_p < 1.f;
  const float reach = whole ? threshold : std::max(threshold, top - kGumbelBound - 4.f);
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row[i] >= reach) candidates.push_back({row[i], static_cast<std::int32_t>(i)});
  }
  if (candidates.empty()) return 0;
  if (whole) keep_nucleus(candidates, filter.top_p, top);
  return race(candidates, draw);
}

}  // namespace

void sample(Context& on, TensorView tokens, TensorView logits, const SamplingArgs& args) {
  const auto x = logits.as<float, 2>();
  const auto out = tokens.as<std::int32_t, 1>();
  const auto temperature = args.temperature.as<float, 1>();
  const auto width = static_cast<std::size_t>(x.extent[1]);
  on.for_rows(x.extent[0], x.extent[1] * kDrawWork, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::span<float> row(&x(r, 0), width);
      const float top = on.kernels.row_max(row.data(), x.extent[1]);
      if (has_nan(row) || top == std::numeric_limits<float>::infinity()) {
        out(r) = kNoToken;
        continue;
      }
      if (temperature(r) <= 0.f) {
        out(r) = first_with(row, top);
        continue;
      }
      const Rows rows{row.data(), Float::f32, 0, 1, 0};
      const float factor = 1.f / temperature(r);
      on.kernels.scale({rows, rows, {}, x.extent[1], x.extent[1], factor}, 0, 1);
      const Filter filter{args.top_k.as<std::int32_t, 1>()(r), args.top_p.as<float, 1>()(r),
                          args.min_p.as<float, 1>()(r)};
      const Draw draw{args.seed.as<std::uint64_t, 1>()(r), args.position.as<std::int64_t, 1>()(r)};
      out(r) = draw_token(row, top * factor, filter, draw);
    }
  });
}

void log_probs(Context& on, TensorView top_ids, TensorView top_values, TensorView token_value,
               TensorView token_rank, TensorView logits, TensorView tokens) {
  const auto x = logits.as<float, 2>();
  const auto token = tokens.as<std::int32_t, 1>();
  const std::int64_t k = top_ids.empty() ? 0 : std::min(top_ids.extent(1), x.extent[1]);
  on.for_rows(x.extent[0], x.extent[1] * kDrawWork, [&](std::int64_t begin, std::int64_t end) {
    auto& [best, copy] = row_scratch();
    for (std::int64_t r = begin; r < end; ++r) {
      const std::span<const float> row(&x(r, 0), static_cast<std::size_t>(x.extent[1]));
      copy.assign(row.begin(), row.end());
      const float top = on.kernels.row_max(copy.data(), x.extent[1]);
      const float log_total =
          top + std::log(on.kernels.row_exp_sum(copy.data(), x.extent[1], top, 1.f));
      const float own = row[static_cast<std::size_t>(std::max(token(r), 0))];
      token_value.as<float, 1>()(r) = own - log_total;
      token_rank.as<std::int32_t, 1>()(r) =
          1 + static_cast<std::int32_t>(
                  std::count_if(row.begin(), row.end(), [own](float v) { return v > own; }));
      if (k == 0) continue;
      find_best(row, k, best);
      for (std::int64_t i = 0; i < k; ++i) {
        top_ids.as<std::int32_t, 2>()(r, i) = best[static_cast<std::size_t>(i)].token;
        top_values.as<float, 2>()(r, i) = best[static_cast<std::size_t>(i)].logit - log_total;
      }
    }
  });
}

}  // namespace quire::cpu
