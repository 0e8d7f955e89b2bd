#pragma once
// Writes a kept prefill into the blocks of one rank of whoever decodes, as it says they are.
// Belongs to the transfer's thread.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/async.h"
#include "engine/kv_mooncake/segment.h"
#include "engine/kv_mooncake/xfer_messages.h"
#include "engine/kv_transfer/memory/kept_prefills.h"
#include "engine/kv_transfer/mooncake/byte_line.h"
#include "engine/kv_transfer/mooncake/shares.h"
#include "engine/kv_transfer/peers/peer_list.h"

namespace quire {

struct MooncakeSum {
  std::uint64_t sum = 0;  // as MooncakeLanding::sum()
  std::int64_t bytes = 0;
  std::vector<std::uint64_t> first_rows = {};  // of what was kept, by layer
};

// Where it is to be written. Numbers only: a name would be looked up, and nobody may have others
// dialled; `asker` is where the ask came from.
void check_mooncake_host(const PeerList& peers, const std::string& asker, MooncakeAsk& ask);

// Throws KvLost where the other end does not take it, a frame takes longer than `silence`, or
// `check`, which is called before each, throws.
awaitable<MooncakeSum> write_mooncake(asio::any_io_executor executor, const MooncakeSelf& self,
                                      const MooncakeAsk& ask, const MooncakeWanted& wanted,
                                      std::shared_ptr<const KeptPrefill> prefill,
                                      std::chrono::nanoseconds silence,
                                      std::function<void()> check);

}  // namespace quire
