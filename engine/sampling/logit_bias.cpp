#include "engine/sampling/logit_bias.h"

#include <algorithm>

namespace quire {

void LogitBias::begin_step() {
  rows_.clear();
  tokens_.clear();
  values_.clear();
}

void LogitBias::add(int row, TokenId token, float bias) {
  rows_.push_back(row);
  tokens_.push_back(token);
  values_.push_back(bias);
}

void LogitBias::apply(Ops& ops, ListPieces& pieces, TensorView logits, StreamRef stream) const {
  for (std::size_t first = 0; first < rows_.size();) {
    const std::size_t size = std::min(pieces.most(), rows_.size() - first);
    const auto piece = pieces.begin<float>(size);
    const auto from = static_cast<std::ptrdiff_t>(first);
    std::copy_n(rows_.begin() + from, size, piece.rows.host.begin());
    std::copy_n(tokens_.begin() + from, size, piece.tokens.host.begin());
    std::copy_n(values_.begin() + from, size, piece.values.host.begin());
    pieces.upload(stream);
    ops.bias_logits(
        logits,
        {.rows = piece.rows.device, .tokens = piece.tokens.device, .values = piece.values.device},
        stream);
    first += size;
  }
}

}  // namespace quire
