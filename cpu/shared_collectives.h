#pragma once
// Collectives of processes (or threads) of one machine, through memory that they share.

#include <cstddef>
#include <memory>

#include "backend/collectives.h"
#include "base/shared_memory.h"

namespace quire {

// What a rank brings: two buffers and counts.
inline constexpr std::size_t kSharedCollectivesBytes = (std::size_t{2} << 20) + 128;
// Size of the ranks' shared memory, which begins as zeros.
std::size_t shared_collectives_bytes(int size);
// memory and fate outlive it.
std::unique_ptr<Collectives> make_shared_collectives(std::byte* memory, SharedFate& fate, int rank,
                                                     int size);
// How long a rank has waited for the others; any of them may ask.
double seconds_waited(const std::byte* memory, int rank);

}  // namespace quire
