#pragma once
// A prefill that travels while it is being computed, chunk by chunk: both ends of one read over a
// line. Belongs to the transfer's thread.

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/async.h"
#include "engine/kv_transfer/content/content.h"
#include "engine/kv_transfer/memory/kept_prefills.h"
#include "engine/kv_transfer/quire/frame_link.h"
#include "engine/kv_transfer/quire/kept_stream.h"

namespace quire {

// Ends when something has changed, or at that time.
using PushWait = std::function<awaitable<void>(std::chrono::steady_clock::time_point until)>;

struct PushSending {
  FrameLink& link;
  std::uint64_t stream = 0;
  const KvRead& read;
  KeptPrefills& kept;
  const KvGeometry& geometry;
  PushWait wait;
};
// Sends what is ready of a prefill that has begun, and tells the reader when it waits for more.
// Returns how many bytes were sent; 0 where the reader was told why there are none.
// `sending` outlives it.
awaitable<std::int64_t> send_pushed(const PushSending& sending);

// Why a prefill that is null or came to nothing is not sent.
KvRefused refusal_of(const KeptPrefill* prefill);
// What a refusal is to whoever asked; never null.
std::exception_ptr loss_of(const std::string& refused);

// Throws KvLost. `reading` outlives it.
awaitable<void> read_pushed(const KvReading& reading);

}  // namespace quire
