// DraftRunner: tokens drawn from a draft's distribution, which is kept to verify them by.

#include <algorithm>

#include "backend/no_token.h"
#include "engine/runner/draft_runner.h"

namespace quire {

// A constraint cuts drafts by what they are: only best ones may be cut so, as rejection sampling
// counts on those that do not hold.
void DraftRunner::add_draws() {
  const std::size_t rows = order_.size();
  for (auto* array : {&draws_.temperature, &draws_.top_p, &draws_.min_p})
    *array = pack_.add<float>(rows);
  draws_.top_k = pack_.add<std::int32_t>(rows);
  draws_.seed = pack_.add<std::uint64_t>(rows);
  draws_.positions.clear();
  draws_.places.clear();
  for (int index = 0; rows > 0 && index < order_.front()->num_wanted; ++index) {
    draws_.positions.push_back(pack_.add<std::int64_t>(rows));
    draws_.places.push_back(pack_.add<std::int32_t>(rows));
  }
  for (std::size_t i = 0; i < rows; ++i) {
    const Line& line = *order_[i];
    const Request& request = *line.row->request;
    const DrawParams params = sampler_->draw_params(request);
    draws_.temperature.host[i] = params.temperature;
    draws_.top_p.host[i] = params.top_p;
    draws_.min_p.host[i] = params.min_p;
    draws_.top_k.host[i] = params.top_k;
    draws_.seed.host[i] = params.seed;
    const bool draws = params.temperature > 0.f && !request.sampling().constraint;
    drawn_[static_cast<std::size_t>(line.row->slot)] = {.request = request.id(),
                                                        .first_position = line.context(),
                                                        .count = draws ? line.num_wanted : 0};
    for (std::size_t index = 0; index < draws_.places.size(); ++index) {
      draws_.positions[index].host[i] = line.context() + static_cast<int>(index);
      draws_.places[index].host[i] =
          draws ? line.row->slot * limits_.max_drafts + static_cast<int>(index) : -1;
    }
  }
}

TensorView DraftRunner::shares() const {
  const std::int64_t places = std::int64_t{limits_.max_num_seqs} * limits_.max_drafts;
  return TensorView(shares_.data(), DType::f32, {places, model_.vocab_size()});
}

void DraftRunner::draw_by_shares(int index, TensorView logits, TensorView ids) {
  const auto first = [&](TensorView values) { return values.rows(0, logits.extent(0)); };
  const auto at = static_cast<std::size_t>(index);
  draft_ops_->draw_drafts(ids, shares(), logits, first(draws_.places[at].device),
                          {.temperature = first(draws_.temperature.device),
                           .top_k = first(draws_.top_k.device),
                           .top_p = first(draws_.top_p.device),
                           .min_p = first(draws_.min_p.device),
                           .seed = first(draws_.seed.device),
                           .position = first(draws_.positions[at].device)},
                          device_.stream());
}

int DraftRunner::place_of(const BatchRow& row, int position, TokenId draft) const {
  const Drawn& drawn = drawn_[static_cast<std::size_t>(row.slot)];
  const int index = position - drawn.first_position;
  if (drawn.request != row.request->id() || index < 0 || index >= drawn.count) return -1;
  if (draft == kNoToken || draft != this->draft(row.slot, index)) return -1;
  return row.slot * limits_.max_drafts + index;
}

}  // namespace quire
