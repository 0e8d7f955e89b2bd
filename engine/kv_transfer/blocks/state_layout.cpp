#include "engine/kv_transfer/blocks/state_layout.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace quire {
namespace {

struct Matrix {
  std::size_t rows = 0, columns = 0, element_bytes = 0;
  std::size_t bytes() const { return rows * columns * element_bytes; }
  Matrix transposed() const { return {columns, rows, element_bytes}; }
};

void transpose(const Matrix& matrix, const std::byte* from, std::byte* to) {
  const std::size_t size = matrix.element_bytes;
  for (std::size_t row = 0; row < matrix.rows; ++row)
    for (std::size_t column = 0; column < matrix.columns; ++column)
      std::memcpy(to + (column * matrix.rows + row) * size,
                  from + (row * matrix.columns + column) * size, size);
}

std::size_t unsigned_of(int number) { return static_cast<std::size_t>(number); }

Matrix conv_of(const KvStateGeometry& state) {
  return {unsigned_of(state.conv_rows), unsigned_of(state.conv_channels),
          unsigned_of(state.conv_element_bytes)};
}

Matrix head_of(const KvStateGeometry& state) {
  return {unsigned_of(state.head_rows), unsigned_of(state.head_columns),
          unsigned_of(state.element_bytes)};
}

std::vector<std::int64_t> channels_of(const KvStateGeometry& state) {
  const bool is_mamba = state.form == StateForm::mamba2;
  const std::int64_t width = is_mamba ? state.head_rows : state.head_columns;
  auto channels = projection_channels(is_mamba ? StateKind::mamba2 : StateKind::delta_net,
                                      state.conv_channels, state.heads * width);
  return channels.empty() ? std::vector<std::int64_t>{state.conv_channels} : channels;
}

// Heads of a delta net are turned over.
void copy_heads(const KvStateGeometry& state, const Matrix& head, const std::byte* from,
                std::byte* to) {
  const std::size_t bytes = head.bytes();
  for (int i = 0; i < state.heads; ++i, from += bytes, to += bytes) {
    if (state.form == StateForm::delta_net) {
      transpose(head, from, to);
    } else {
      std::memcpy(to, from, bytes);
    }
  }
}

// Of a whole block those bytes that the rank has, and where in its own.
std::vector<BlockCopy> copies_of(const KvStateGeometry& state, int rank, int num_ranks) {
  const RankPair pair{.remote_ranks = num_ranks, .kv_heads = 1};
  return state_copies(source_ranks(pair), rank, state_bytes(state));
}

std::vector<std::byte> whole_block(const KvStateGeometry& state) {
  const StateBytes bytes = state_bytes(state);
  return std::vector<std::byte>(static_cast<std::size_t>(bytes.conv() + bytes.rest));
}

}  // namespace

StateBytes state_bytes(const KvStateGeometry& state) {
  StateBytes bytes{.projections = channels_of(state)};
  for (std::int64_t& part : bytes.projections)
    part *= std::int64_t{state.conv_rows} * state.conv_element_bytes;
  bytes.rest = static_cast<std::int64_t>(head_of(state).bytes()) * state.heads;
  return bytes;
}

bool divides(const KvStateGeometry& state, int num_ranks) {
  const auto channels = channels_of(state);
  return state.heads % num_ranks == 0 &&
         std::ranges::all_of(channels, [&](auto part) { return part % num_ranks == 0; });
}

void state_to_block(const KvStateGeometry& state, std::span<const std::byte> kept,
                    std::span<std::byte> block) {
  const Matrix conv = conv_of(state);
  transpose(conv, kept.data(), block.data());
  copy_heads(state, head_of(state), kept.data() + conv.bytes(), block.data() + conv.bytes());
}

void block_to_state(const KvStateGeometry& state, std::span<const std::byte> block,
                    std::span<std::byte> kept) {
  const Matrix conv = conv_of(state);
  transpose(conv.transposed(), block.data(), kept.data());
  copy_heads(state, head_of(state).transposed(), block.data() + conv.bytes(),
             kept.data() + conv.bytes());
}

void state_to_rank(const KvStateGeometry& state, std::span<const std::byte> kept, int rank,
                   int num_ranks, std::span<std::byte> block) {
  std::vector<std::byte> whole = whole_block(state);
  state_to_block(state, kept, whole);
  std::ranges::fill(block, std::byte{0});
  for (const BlockCopy& copy : copies_of(state, rank, num_ranks))
    std::memcpy(block.data() + copy.remote, whole.data() + copy.local,
                static_cast<std::size_t>(copy.bytes));
}

void ranks_to_state(const KvStateGeometry& state, std::span<const std::byte> blocks, int num_ranks,
                    std::span<std::byte> kept) {
  std::vector<std::byte> whole = whole_block(state);
  const std::size_t apart = blocks.size() / unsigned_of(num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank)
    for (const BlockCopy& copy : copies_of(state, rank, num_ranks))
      std::memcpy(whole.data() + copy.local,
                  blocks.data() + unsigned_of(rank) * apart + copy.remote,
                  static_cast<std::size_t>(copy.bytes));
  block_to_state(state, whole, kept);
}

}  // namespace quire
