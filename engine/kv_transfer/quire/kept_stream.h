#pragma once
// What a prefill's reader does on a line after it has asked, and what is the same where it is
// pushed (push_stream.h). Belongs to the transfer's thread.

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "base/async.h"
#include "engine/kv_transfer/content/content.h"
#include "engine/kv_transfer/quire/frame_link.h"

namespace quire {

struct KvReading {
  FrameLink& link;
  std::uint64_t stream = 0;
  const KvContent& content;
  std::span<std::byte> bytes;
  std::span<const std::byte> memory;  // of the owner, where both have it; empty: over the line
  std::chrono::nanoseconds silence;
  std::chrono::nanoseconds patience;  // until all of what is pushed is there
  bool& begun;                        // the owner has answered
  int part = 0, parts = 1;            // of what is kept
};

// All throw KvLost. `reading` outlives them.
awaitable<void> read_kept(const KvReading& reading);

// What these tokens travel in: on one host larger pieces than over a line.
std::vector<KvPiece> pieces_of(const KvReading& reading, KvTokens tokens);
// The next frames, which begin with that number.
awaitable<void> read_pieces(const KvReading& reading, std::span<const KvPiece> pieces,
                            std::uint64_t& sequence);
// Says that so many pieces were copied out of the owner's memory.
awaitable<void> say_copied(const KvReading& reading, std::uint64_t pieces);

}  // namespace quire
