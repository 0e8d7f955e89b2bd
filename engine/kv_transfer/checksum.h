#pragma once
// What travels is checked before it is used: 64 bits over a range of bytes. Against damage, not
// against people.

#include <cstddef>
#include <cstdint>
#include <span>

namespace quire {

// Differs with certainty where one aligned word of eight bytes differs, and with 1 − 2⁻⁶⁴
// otherwise.
std::uint64_t kv_checksum(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace quire
