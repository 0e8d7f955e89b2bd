#pragma once
// Recurrent states as vLLM's blocks hold them for transfer: of each channel of the convolution its
// rows, then the heads, those of a delta net by value and key. Here they travel as they are kept,
// row by row and by key and value; these are the copies between the two. Pure.

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/kv_nixl/source_ranks.h"
#include "engine/kv_transfer/content/geometry.h"

namespace quire {

// The parts in which ranks of a server share it, of one that has all of it.
StateBytes state_bytes(const KvStateGeometry& state);
// Whether so many ranks can share it.
bool divides(const KvStateGeometry& state, int num_ranks);

// Both of all of its bytes.
void state_to_block(const KvStateGeometry& state, std::span<const std::byte> kept,
                    std::span<std::byte> block);
void block_to_state(const KvStateGeometry& state, std::span<const std::byte> block,
                    std::span<std::byte> kept);

// What one of so many ranks that share it has, where divides(); the block may be longer, and is
// filled up with zeros.
void state_to_rank(const KvStateGeometry& state, std::span<const std::byte> kept, int rank,
                   int num_ranks, std::span<std::byte> block);
// Makes a whole state of the ranks' blocks, which are equally long and lie one behind the other.
void ranks_to_state(const KvStateGeometry& state, std::span<const std::byte> blocks, int num_ranks,
                    std::span<std::byte> kept);

}  // namespace quire
