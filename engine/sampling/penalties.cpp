#include "engine/sampling/penalties.h"

#include <algorithm>
#include <cassert>

namespace quire {
namespace {

std::size_t pack_bytes(int max_slots, int max_rows, int max_drafts) {
  const auto ints = StagedPack::bytes_of<std::int32_t>;
  const auto rows = static_cast<std::size_t>(max_rows);
  return 3 * ints(rows) + ints(rows * static_cast<std::size_t>(max_drafts)) +
         ints(static_cast<std::size_t>(max_slots));
}

// Whole words: two counts are changed at a time.
std::size_t table_bytes(int max_slots, int vocab_size) {
  const std::size_t cells = static_cast<std::size_t>(max_slots) * vocab_size;
  return (cells + 1) / 2 * 2 * sizeof(std::uint16_t);
}

}  // namespace

Penalties::Penalties(Device& device, int max_slots, int max_rows, int max_drafts, int vocab_size)
    : vocab_size_(vocab_size),
      counts_(device.allocate(table_bytes(max_slots, vocab_size), MemoryPurpose::sampling)),
      next_(max_slots),
      pack_(device, MemoryPurpose::sampling, 0, pack_bytes(max_slots, max_rows, max_drafts)) {}

TensorView Penalties::table() const {
  return {counts_.data(), DType::u16, {static_cast<std::int64_t>(next_.size()), vocab_size_}};
}

void Penalties::begin_step() {
  rows_.clear();
  unknown_.clear();
  num_drafts_ = 0;
}

void Penalties::reset(int slot) {
  next_[slot] = 0;
  std::erase_if(accepted_, [slot](const auto& one) { return one.first == slot; });
}

void Penalties::add_row(const Row& row, const Request& request, int position) {
  std::int32_t& next = next_[row.slot];
  const bool counted = next == kAnywhere || next == position || !row.drafts.empty();
  if (!counted) unknown_.emplace_back(row.slot, &request);
  next = row.is_verified ? kAnywhere : position + 1;
  rows_.push_back(row);
  num_drafts_ = std::max(num_drafts_, static_cast<int>(row.drafts.size()));
}

void Penalties::accept(int slot, std::span<const TokenId> tokens) {
  if (next_[slot] != kAnywhere) return;  // nobody counts here
  for (const TokenId token : tokens) accepted_.emplace_back(slot, token);
}

void Penalties::count_accepted(Ops& ops, ListPieces& pieces, StreamRef stream) {
  for (std::size_t first = 0; first < accepted_.size();) {
    const std::size_t size = std::min(pieces.most(), accepted_.size() - first);
    const auto piece = pieces.begin<std::int32_t>(size);
    for (std::size_t i = 0; i < size; ++i) {
      piece.rows.host[i] = accepted_[first + i].first;
      piece.tokens.host[i] = accepted_[first + i].second;
    }
    pieces.upload(stream);
    ops.count_tokens(table(), piece.rows.device, piece.tokens.device, stream);
    first += size;
  }
  accepted_.clear();
}

void Penalties::apply(Ops& ops, ListPieces& pieces, TensorView logits,
                      const PenaltyFactors& factors, StreamRef stream) {
  stage_rows(logits.extent(0));
  pack_.upload(stream);
  count_accepted(ops, pieces, stream);
  if (!unknown_.empty()) load(ops, pieces, stream);
  PenaltyArgs args{.counts = table(),
                   .rows = row_ids_.device,
                   .slots = slots_.device,
                   .drafts = {},
                   .repetition = factors.repetition,
                   .frequency = factors.frequency,
                   .presence = factors.presence};
  if (num_drafts_ > 0) {
    args.drafts = drafts_.device.reshape(
        {static_cast<std::int64_t>(rows_.size()), std::int64_t{num_drafts_}});
  }
  ops.penalize_logits(logits, args, stream);
}

void Penalties::stage_rows(std::int64_t num_rows) {
  pack_.begin();
  row_ids_ = pack_.add<std::int32_t>(rows_.size());
  slots_ = pack_.add<std::int32_t>(rows_.size());
  drafts_ = pack_.add<std::int32_t>(rows_.size() * static_cast<std::size_t>(num_drafts_));
  slot_of_row_ = pack_.add<std::int32_t>(static_cast<std::size_t>(num_rows));
  zeroed_ = pack_.add<std::int32_t>(unknown_.size());
  std::ranges::fill(drafts_.host, -1);
  std::ranges::fill(slot_of_row_.host, -1);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    row_ids_.host[i] = rows_[i].row;
    slots_.host[i] = rows_[i].slot;
    slot_of_row_.host[rows_[i].row] = rows_[i].is_verified ? -1 : rows_[i].slot;
    std::ranges::copy(rows_[i].drafts,
                      drafts_.host.begin() + static_cast<std::ptrdiff_t>(i) * num_drafts_);
  }
  for (std::size_t i = 0; i < unknown_.size(); ++i) zeroed_.host[i] = unknown_[i].first;
}

void Penalties::load(Ops& ops, ListPieces& pieces, StreamRef stream) {
  ops.zero_blocks(TensorView(counts_.data(), DType::u8,
                             {static_cast<std::int64_t>(next_.size()),
                              vocab_size_ * static_cast<std::int64_t>(sizeof(std::uint16_t))}),
                  zeroed_.device, stream);
  for (const auto& [slot, request] : unknown_) send_counts(ops, pieces, slot, *request, stream);
}

void Penalties::send_counts(Ops& ops, ListPieces& pieces, int slot, const Request& request,
                            StreamRef stream) {
  seen_.clear();
  assert(request.num_tokens() == next_[slot] - 1 || next_[slot] == kAnywhere);
  for (const TokenId token : request.prompt()) seen_.add_prompt(token);
  for (const TokenId token : request.output()) seen_.add_output(token);
  const auto tokens = seen_.tokens();
  for (std::size_t first = 0; first < tokens.size();) {
    const std::size_t size = std::min(pieces.most(), tokens.size() - first);
    const auto piece = pieces.begin<std::int32_t>(size);
    std::ranges::fill(piece.rows.host, slot);
    std::ranges::copy(tokens.subspan(first, size), piece.tokens.host.begin());
    for (std::size_t i = 0; i < size; ++i) {
      const std::int32_t times = seen_.counts()[first + i];
      piece.values.host[i] = times == 0 ? kSeenInPrompt : std::min<std::int32_t>(times, kMostSeen);
    }
    pieces.upload(stream);
    ops.set_token_counts(
        table(),
        {.slots = piece.rows.device, .tokens = piece.tokens.device, .counts = piece.values.device},
        stream);
    first += size;
  }
}

void Penalties::count(Ops& ops, TensorView drawn, StreamRef stream) {
  ops.count_tokens(table(), slot_of_row_.device, drawn, stream);
}

}  // namespace quire
