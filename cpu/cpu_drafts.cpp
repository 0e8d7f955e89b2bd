#include "cpu/cpu_drafts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "backend/no_token.h"

namespace quire::cpu {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();
constexpr std::int64_t kDrawWork = 16;  // element operations per vocabulary entry of a draw

// Ties with the k-th largest stay.
void keep_top_k(std::span<float> scaled, std::int32_t k) {
  if (k <= 0 || static_cast<std::size_t>(k) >= scaled.size()) return;
  std::vector<float> sorted(scaled.begin(), scaled.end());
  std::nth_element(sorted.begin(), sorted.begin() + (k - 1), sorted.end(), std::greater<>());
  const float least = sorted[static_cast<std::size_t>(k) - 1];
  for (float& x : scaled)
    if (x < least) x = kForbidden;
}

// The smallest set of the largest that reaches top_p of all.
void keep_nucleus(std::span<float> shares, float top_p) {
  if (top_p >= 1.f) return;
  std::vector<std::size_t> order;
  double total = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] <= 0.f) continue;
    order.push_back(i);
    total += shares[i];
  }
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return shares[i]; });
  double before = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    float& share = shares[order[i]];
    const bool is_in = i == 0 || before < top_p * total;
    before += share;
    if (!is_in) share = 0;
  }
}

ShareFilter filter_of(const SamplingArgs& args, std::int64_t row) {
  return {.temperature = args.temperature.as<float, 1>()(row),
          .top_p = args.top_p.as<float, 1>()(row),
          .min_p = args.min_p.as<float, 1>()(row),
          .top_k = args.top_k.as<std::int32_t, 1>()(row)};
}

}  // namespace

void shares_of(std::span<const float> logits, const ShareFilter& params,
               std::vector<float>& shares) {
  shares.assign(logits.begin(), logits.end());
  for (float& x : shares) x *= 1.f / params.temperature;
  const bool has_nan = std::ranges::any_of(shares, [](float x) { return x != x; });
  const float top = has_nan ? kForbidden : *std::ranges::max_element(shares);
  if (!std::isfinite(top)) return shares.clear();
  keep_top_k(shares, params.top_k);
  const float least = params.min_p > 0.f ? top + std::log(params.min_p) : kForbidden;
  for (float& x : shares) x = x < least ? 0.f : std::exp(x - top);
  keep_nucleus(shares, params.top_p);
  double total = 0;
  for (const float x : shares) total += x;
  for (float& x : shares) x = static_cast<float>(x / total);
}

std::int32_t token_at(std::span<const float> shares, double x) {
  double total = 0;
  for (const float share : shares) total += share;
  double passed = 0;
  std::int32_t last = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] <= 0.f) continue;
    last = static_cast<std::int32_t>(i);
    passed += shares[i];
    if (x * total < passed) break;
  }
  return last;
}

std::int32_t verified(std::int32_t draft, std::span<const float> target,
                      std::span<const float> drafted, double keep, double replace) {
  const auto at = static_cast<std::size_t>(draft);
  if (keep * drafted[at] < target[at]) return draft;
  std::vector<float> rest(target.size());
  double total = 0;
  for (std::size_t i = 0; i < rest.size(); ++i)
    total += rest[i] = std::max(target[i] - drafted[i], 0.f);
  // Equal up to rounding: then hardly anything is rejected.
  return total > 0 ? token_at(rest, replace) : draft;
}

void draw_drafts(Context& on, TensorView tokens, TensorView shares, TensorView logits,
                 TensorView places, const SamplingArgs& args) {
  const auto x = logits.as<float, 2>();
  const auto all = shares.as<float, 2>();
  const auto out = tokens.as<std::int32_t, 1>();
  const auto place = places.as<std::int32_t, 1>();
  const auto seed = args.seed.as<std::uint64_t, 1>();
  const auto position = args.position.as<std::int64_t, 1>();
  on.for_rows(x.extent[0], x.extent[1] * kDrawWork, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> own;
    for (std::int64_t r = begin; r < end; ++r) {
      const std::span<const float> row(&x(r, 0), static_cast<std::size_t>(x.extent[1]));
      const ShareFilter filter = filter_of(args, r);
      const bool draws = filter.temperature > 0.f && place(r) >= 0;
      shares_of(row, draws ? filter : ShareFilter(), own);
      if (own.empty()) {
        out(r) = kNoToken;
        own.assign(row.size(), 0.f);
        own[0] = 1;
      } else if (!draws) {
        out(r) = static_cast<std::int32_t>(std::ranges::max_element(row) - row.begin());
      } else {
        out(r) = token_at(own, draft_noise(seed(r), position(r), DraftNoise::draft));
      }
      if (draws) std::ranges::copy(own, &all(place(r), 0));
    }
  });
}

void settle_drafts(const HeldArgs& args) {
  const auto ints = [](const TensorView& values) { return values.as<std::int32_t, 1>(); };
  const auto draws = ints(args.draws), tokens = ints(args.tokens), numbers = ints(args.numbers);
  const auto num_drafts = ints(args.num_drafts), first_draft = ints(args.first_draft);
  const auto first_draw = ints(args.first_draw);
  const auto at = ints(args.at), line_of = ints(args.line);
  const std::int64_t lines = args.num_drafts.extent(0);
  std::vector<std::int32_t> lost(static_cast<std::size_t>(lines));
  for (std::int64_t line = 0; line < lines; ++line) {
    const std::int32_t drawn = first_draw(line), drafts = num_drafts(line);
    if (drawn < 0) continue;
    int held = 0;
    const auto holds = [&](int i) {
      const std::int32_t draft = tokens(first_draft(line) + i);
      return draft != kNoToken && draft == draws(drawn + i);
    };
    while (held < drafts && holds(held)) ++held;
    lost[static_cast<std::size_t>(line)] = drafts - held;
    if (args.first_next.empty()) continue;
    for (int i = 0; i <= drafts; ++i) numbers(ints(args.first_next)(line) + i) = draws(drawn + i);
  }
  for (std::int64_t c = 0; c < args.at.extent(0); ++c)
    if (line_of(c) >= 0) numbers(at(c)) -= lost[static_cast<std::size_t>(line_of(c))];
  if (args.lost.empty()) return;
  for (std::int64_t line = 0; line < lines; ++line)
    ints(args.lost)(line) = lost[static_cast<std::size_t>(line)];
}

void lag_numbers(TensorView numbers, TensorView at, TensorView line, TensorView lost) {
  const auto out = numbers.as<std::int32_t, 1>(), cells = at.as<std::int32_t, 1>();
  const auto line_of = line.as<std::int32_t, 1>(), by = lost.as<std::int32_t, 1>();
  for (std::int64_t c = 0; c < at.extent(0); ++c)
    if (line_of(c) >= 0) out(cells(c)) -= by(line_of(c));
}

void verify_drafts(Context& on, TensorView logits, const VerifyArgs& args) {
  const auto x = logits.as<float, 2>();
  const auto rows = args.rows.as<std::int32_t, 1>();
  const auto drafts = args.drafts.as<std::int32_t, 1>();
  const auto places = args.places.as<std::int32_t, 1>();
  const auto shares = args.shares.as<float, 2>();
  const auto seed = args.sampling.seed.as<std::uint64_t, 1>();
  const auto position = args.sampling.position.as<std::int64_t, 1>();
  const auto* const ids =
      static_cast<const std::int32_t*>(args.target_ids.empty() ? nullptr : args.target_ids.data());
  const auto width = static_cast<std::size_t>(x.extent[1]);
  on.for_rows(rows.extent[0], x.extent[1] * kDrawWork, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> target, drafted;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int32_t r = rows(i);
      const std::span<float> row(&x(r, 0), width);
      shares_of(row, filter_of(args.sampling, r), target);
      if (target.empty()) continue;
      drafted.assign(width, 0.f);
      for (std::int64_t own = 0; own < shares.extent[1]; ++own)
        drafted[static_cast<std::size_t>(ids == nullptr ? own : ids[own])] = shares(places(i), own);
      const std::int32_t outcome =
          verified(drafts(i), target, drafted, draft_noise(seed(r), position(r), DraftNoise::keep),
                   draft_noise(seed(r), position(r), DraftNoise::replace));
      std::ranges::fill(row, kForbidden);
      row[static_cast<std::size_t>(outcome)] = 0.f;
    }
  });
}

}  // namespace quire::cpu
