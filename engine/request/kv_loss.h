#pragma once
// Why keys and values could not be fetched from another engine.

#include <array>
#include <cstdint>

namespace quire {

enum class KvLossReason : std::uint8_t {
  peer_lost,     // not reached, or gone before the end
  expired,       // the peer no longer has it
  incompatible,  // another model, dtype or geometry
  prompt,        // kept for other tokens than the request's
  corrupt,       // a checksum or the protocol was violated
  no_room,       // larger than the buffer
  refused,       // anything else that the peer refused
};
inline constexpr std::array<const char*, 7> kKvLossNames{
    "peer_lost", "expired", "incompatible", "prompt", "corrupt", "no_room", "refused"};

}  // namespace quire
