#include "backend/fragment_pack.h"

#include <algorithm>
#include <cstring>

namespace quire {

namespace {

void put_word(std::byte* words, std::int64_t at, std::uint32_t word) {
  std::memcpy(words + at * 4, &word, sizeof word);
}

// The eight codes of a lane's part of a slice.
void put_lane(const GroupFormat& format, std::byte* codes, int slice, int lane, int half,
              const std::uint8_t (&code)[8]) {
  std::uint32_t bytes[2] = {}, nibbles = 0;
  std::uint8_t high[2] = {};
  for (int e = 0; e < 8; ++e) {
    const int byte = kByteOfElement[e % 4];
    bytes[e / 4] |= std::uint32_t{code[e]} << 8 * byte;
    const int nibble = format.nonlinear ? e / 4 * 4 + byte : e % 2 * 4 + e / 2;
    nibbles |= (code[e] & 15u) << 4 * nibble;
    high[e % 2] = static_cast<std::uint8_t>(high[e % 2] | code[e] >> 4 << e / 2 * 2);
  }
  if (format.bits == 8) {
    for (int i = 0; i < 2; ++i) put_word(codes, ((slice * 32 + lane) * 2 + half) * 2 + i, bytes[i]);
    return;
  }
  put_word(codes, ((slice / 2 * 32 + lane) * 2 + slice % 2) * 2 + half, nibbles);
  if (format.bits == 4) return;
  std::byte* const to = codes + kFragmentRows * kFragmentColumns / 2 +
                        ((lane * 2 + slice / 2) * 2 + half) * 4 + slice % 2;
  to[0] = std::byte{high[0]};
  to[2] = std::byte{high[1]};
}

// `count` codes of a row's part of a tile.
void put_codes(const GroupFormat& format, std::byte* codes, int row, const std::uint8_t* from,
               std::int64_t count) {
  std::uint8_t own[kFragmentColumns] = {};
  std::memcpy(own, from, static_cast<std::size_t>(count));
  for (int slice = 0; slice < kFragmentColumns / kFragmentSlice; ++slice) {
    const std::uint8_t* const at = own + slice * kFragmentSlice;
    for (int quarter = 0; quarter < 4; ++quarter) {
      std::uint8_t code[8];
      for (int e = 0; e < 8; ++e)
        code[e] = at[format.group == 16 ? e / 4 * 16 + quarter * 4 + e % 4 : quarter * 8 + e];
      put_lane(format, codes, slice, row % 8 * 4 + quarter, row / 8, code);
    }
  }
}

}  // namespace

bool pack_fragment_row(const GroupFormat& format, const CodeRow& from, std::int64_t row,
                       std::byte* tiles) {
  const auto columns = static_cast<std::int64_t>(from.codes.size());
  const std::int64_t tile_bytes = fragment_tile_bytes(format);
  const int within = static_cast<int>(row % kFragmentRows);
  const int groups = kFragmentColumns / format.group, kinds = format.has_min ? 2 : 1;
  std::byte* tile = tiles + row / kFragmentRows * fragment_tiles(columns) * tile_bytes;
  bool finite = true;
  for (std::int64_t k = 0; k < columns; k += kFragmentColumns, tile += tile_bytes) {
    const std::int64_t count = std::min<std::int64_t>(kFragmentColumns, columns - k);
    for (int g = 0; g * format.group < count; ++g) {
      std::byte* const to = tile + (within % 8 * groups + g) * kinds * 4 + within / 8 * 2;
      const auto at = static_cast<std::size_t>(k / format.group + g);
      finite &= put_half(to, from.scales[at]);
      if (format.has_min) finite &= put_half(to + 4, from.mins[at]);
    }
    put_codes(format, tile + fragment_scale_bytes(format), within, from.codes.data() + k, count);
  }
  return finite;
}

}  // namespace quire
