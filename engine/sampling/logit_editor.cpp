#include "engine/sampling/logit_editor.h"

#include <algorithm>

namespace quire {
namespace {

constexpr std::size_t kPieceSize = 1 << 18;  // 3 MiB: penalties of 256 requests of 1000 tokens

std::size_t piece_size(int max_num_seqs, int vocab_size) {
  return std::min(kPieceSize, static_cast<std::size_t>(max_num_seqs) * vocab_size);
}

}  // namespace

LogitEditor::LogitEditor(Device& device, Ops& ops, int max_num_seqs, int vocab_size)
    : ops_(ops),
      piece_size_(piece_size(max_num_seqs, vocab_size)),
      pack_(device, MemoryPurpose::sampling, 0,
            3 * StagedPack::bytes_of<std::int32_t>(piece_size_)) {
  for (auto& event : uploaded_) event = device.create_event();
}

void LogitEditor::begin_step() {
  bias_rows_.clear();
  bias_tokens_.clear();
  bias_values_.clear();
  seen_.clear();
  num_seen_ = 0;
}

void LogitEditor::add_bias(int row, TokenId token, float bias) {
  bias_rows_.push_back(row);
  bias_tokens_.push_back(token);
  bias_values_.push_back(bias);
}

void LogitEditor::add_seen(int row, const TokenCounts& counts) {
  if (counts.tokens().empty()) return;
  seen_.push_back({row, &counts});
  num_seen_ += counts.tokens().size();
}

void LogitEditor::apply(TensorView logits, const Penalties& penalties, StreamRef stream) {
  LogitEdits edits;
  edits.repetition = penalties.repetition;
  edits.frequency = penalties.frequency;
  edits.presence = penalties.presence;
  apply_bias(logits, edits, stream);
  apply_seen(logits, edits, stream);
}

// Writes where the piece before the last was, once that has been copied.
template <class Value>
LogitEditor::Piece<Value> LogitEditor::begin_piece(std::size_t size) {
  turn_ = 1 - turn_;
  uploaded_[turn_]->wait();
  pack_.begin();
  return {pack_.add<std::int32_t>(size), pack_.add<std::int32_t>(size), pack_.add<Value>(size)};
}

void LogitEditor::apply_piece(TensorView logits, const LogitEdits& edits, StreamRef stream) {
  pack_.upload(stream);
  uploaded_[turn_]->record(stream);
  ops_.edit_logits(logits, edits, stream);
}

void LogitEditor::apply_bias(TensorView logits, const LogitEdits& penalties, StreamRef stream) {
  for (std::size_t first = 0; first < bias_rows_.size();) {
    const std::size_t size = std::min(piece_size_, bias_rows_.size() - first);
    const auto piece = begin_piece<float>(size);
    std::copy_n(bias_rows_.begin() + static_cast<std::ptrdiff_t>(first), size,
                piece.rows.host.begin());
    std::copy_n(bias_tokens_.begin() + static_cast<std::ptrdiff_t>(first), size,
                piece.tokens.host.begin());
    std::copy_n(bias_values_.begin() + static_cast<std::ptrdiff_t>(first), size,
                piece.values.host.begin());
    LogitEdits edits = penalties;
    edits.bias_row = piece.rows.device;
    edits.bias_token = piece.tokens.device;
    edits.bias_value = piece.values.device;
    apply_piece(logits, edits, stream);
    first += size;
  }
}

void LogitEditor::apply_seen(TensorView logits, const LogitEdits& penalties, StreamRef stream) {
  std::size_t left = num_seen_, at = 0, of_row = 0;  // entry of_row of seen_[at] is next
  while (left > 0) {
    const std::size_t size = std::min(piece_size_, left);
    const auto piece = begin_piece<std::int32_t>(size);
    for (std::size_t filled = 0; filled < size;) {
      const auto tokens = seen_[at].counts->tokens().subspan(of_row);
      const auto counts = seen_[at].counts->counts().subspan(of_row);
      const std::size_t count = std::min(tokens.size(), size - filled);
      const auto to = static_cast<std::ptrdiff_t>(filled);
      std::fill_n(piece.rows.host.begin() + to, count, seen_[at].row);
      std::copy_n(tokens.begin(), count, piece.tokens.host.begin() + to);
      std::copy_n(counts.begin(), count, piece.values.host.begin() + to);
      filled += count;
      of_row += count;
      if (of_row == seen_[at].counts->tokens().size()) of_row = 0, ++at;
    }
    LogitEdits edits = penalties;
    edits.seen_row = piece.rows.device;
    edits.seen_token = piece.tokens.device;
    edits.seen_count = piece.values.device;
    apply_piece(logits, edits, stream);
    left -= size;
  }
}

}  // namespace quire
