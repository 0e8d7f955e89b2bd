// Changes to logits before a draw, and what penalties remember. Rows are independent; lists are
// short beside a row.

#include <algorithm>
#include <cassert>
#include <limits>

#include "cpu/operators.h"

namespace quire::cpu {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

// Whole words in which everything is allowed, or nothing, are the rule.
void mask_row(float* logits, std::int64_t vocab, const std::uint32_t* words) {
  for (std::int64_t first = 0; first < vocab; first += 32) {
    const std::uint32_t word = *words++;
    if (word == ~0u) continue;
    const std::int64_t count = std::min<std::int64_t>(32, vocab - first);
    for (std::int64_t i = 0; i < count; ++i) {
      if ((word >> i & 1u) == 0) logits[first + i] = kForbidden;
    }
  }
}

struct RowPenalty {
  float repetition, frequency, presence;

  float on(float logit, bool in_prompt, int times) const {
    if (!in_prompt && times == 0) return logit;
    logit = logit > 0.f ? logit / repetition : logit * repetition;
    logit -= frequency * static_cast<float>(times);
    return times > 0 ? logit - presence : logit;
  }
};

// Of drafts, which may hold a token several times: how often they hold it.
int times_in(const std::int32_t* drafts, std::int64_t count, std::int32_t token) {
  return static_cast<int>(std::count(drafts, drafts + count, token));
}

}  // namespace

void mask_logits(Context& on, TensorView logits, const MaskArgs& args) {
  const auto x = logits.as<float, 2>();
  const auto words = args.words.as<std::uint32_t, 2>();
  const auto rows = args.rows.as<std::int32_t, 1>();
  assert(words.extent[1] * 32 >= x.extent[1]);
  on.for_rows(rows.extent[0], x.extent[1], [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      mask_row(&x(rows(i), 0), x.extent[1], &words(i, 0));
    }
  });
}

void bias_logits(TensorView logits, const BiasArgs& args) {
  const auto x = logits.as<float, 2>();
  const auto rows = args.rows.as<std::int32_t, 1>();
  const auto tokens = args.tokens.as<std::int32_t, 1>();
  const auto values = args.values.as<float, 1>();
  for (std::int64_t i = 0; i < rows.extent[0]; ++i) {
    assert(0 <= rows(i) && rows(i) < x.extent[0] && 0 <= tokens(i) && tokens(i) < x.extent[1]);
    x(rows(i), tokens(i)) += values(i);
  }
}

void penalize_logits(Context& on, TensorView logits, const PenaltyArgs& args) {
  const auto x = logits.as<float, 2>();
  const auto counts = args.counts.as<std::uint16_t, 2>();
  const auto rows = args.rows.as<std::int32_t, 1>();
  const auto slots = args.slots.as<std::int32_t, 1>();
  const std::int64_t num_drafts = args.drafts.empty() ? 0 : args.drafts.extent(1);
  on.for_rows(rows.extent[0], x.extent[1], [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int32_t row = rows(i);
      const RowPenalty penalty{args.repetition.as<float, 1>()(row),
                               args.frequency.as<float, 1>()(row),
                               args.presence.as<float, 1>()(row)};
      const std::int32_t* drafts =
          num_drafts == 0 ? nullptr : &args.drafts.as<std::int32_t, 2>()(i, 0);
      float* logit = &x(row, 0);
      const std::uint16_t* seen = &counts(slots(i), 0);
      for (std::int64_t t = 0; t < x.extent[1]; ++t) {
        const int drafted =
            num_drafts == 0 ? 0 : times_in(drafts, num_drafts, static_cast<std::int32_t>(t));
        logit[t] =
            penalty.on(logit[t], (seen[t] & kSeenInPrompt) != 0, (seen[t] & kMostSeen) + drafted);
      }
    }
  });
}

void set_token_counts(TensorView counts, const TokenCountArgs& args) {
  const auto table = counts.as<std::uint16_t, 2>();
  const auto slots = args.slots.as<std::int32_t, 1>();
  const auto tokens = args.tokens.as<std::int32_t, 1>();
  const auto values = args.counts.as<std::int32_t, 1>();
  for (std::int64_t i = 0; i < slots.extent[0]; ++i) {
    table(slots(i), tokens(i)) = static_cast<std::uint16_t>(values(i));
  }
}

void count_tokens(TensorView counts, TensorView slots, TensorView tokens) {
  const auto table = counts.as<std::uint16_t, 2>();
  const auto slot = slots.as<std::int32_t, 1>();
  const auto token = tokens.as<std::int32_t, 1>();
  for (std::int64_t i = 0; i < slot.extent[0]; ++i) {
    if (slot(i) < 0 || token(i) < 0) continue;
    std::uint16_t& count = table(slot(i), token(i));
    if ((count & kMostSeen) < kMostSeen) ++count;
  }
}

}  // namespace quire::cpu
