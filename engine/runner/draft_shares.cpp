// DraftRunner: tokens drawn from a draft's distribution, which is kept to verify them by. On
// devices of host memory, as the rest of rejection sampling: what the device has, the host reads.

#include <algorithm>

#include "engine/runner/draft_runner.h"

namespace quire {

// A constraint cuts drafts by what they are: only best ones may be cut so, as rejection sampling
// counts on those that do not hold.
void DraftRunner::draw_by_shares(int index, TensorView logits, TensorView ids) {
  const auto x = logits.as<float, 2>();
  const auto out = ids.as<std::int32_t, 1>();
  const auto vocab = static_cast<std::size_t>(x.extent[1]);
  for (std::int64_t row = 0; row < x.extent[0]; ++row) {
    const Line& line = *order_[static_cast<std::size_t>(row)];
    const Request& request = *line.row->request;
    const auto slot = static_cast<std::size_t>(line.row->slot);
    Drawn& drawn = drawn_[slot];
    if (index == 0) {
      drawn.request = request.id();
      drawn.first_position = line.context();
      drawn.own_ids.clear();
    }
    const DrawParams params = sampler_->draw_params(request);
    scratch_.clear();
    if (params.temperature > 0.f && !request.sampling().constraint)
      shares_of({&x(row, 0), vocab}, params, scratch_);
    drawn.own_ids.push_back(-1);
    if (scratch_.empty()) continue;
    const std::int64_t position = drawn.first_position + index;
    out(row) = token_at(scratch_, draft_noise(params, position, DraftNoise::draft));
    drawn.own_ids.back() = out(row);
    const std::size_t place = slot * static_cast<std::size_t>(limits_.max_drafts) + index;
    std::ranges::copy(scratch_, static_cast<float*>(shares_.data()) + place * vocab);
  }
}

bool DraftRunner::read_shares(const BatchRow& row, int position, TokenId draft,
                              std::span<float> shares) const {
  const auto slot = static_cast<std::size_t>(row.slot);
  const Drawn& drawn = drawn_[slot];
  const int index = position - drawn.first_position;
  if (drawn.request != row.request->id() || index < 0 ||
      index >= static_cast<int>(drawn.own_ids.size()))
    return false;
  const TokenId own = drawn.own_ids[static_cast<std::size_t>(index)];
  if (own < 0) return false;
  const TensorView ids = model_.target_ids();
  const auto* const targets = static_cast<const std::int32_t*>(ids.empty() ? nullptr : ids.data());
  if ((targets == nullptr ? own : targets[own]) != draft) return false;
  const auto vocab = static_cast<std::size_t>(model_.vocab_size());
  const std::size_t place =
      slot * static_cast<std::size_t>(limits_.max_drafts) + static_cast<std::size_t>(index);
  const auto* const own_shares = static_cast<const float*>(shares_.data()) + place * vocab;
  std::ranges::fill(shares, 0.f);
  for (std::size_t i = 0; i < vocab; ++i)
    shares[targets == nullptr ? i : static_cast<std::size_t>(targets[i])] = own_shares[i];
  return true;
}

}  // namespace quire
