#pragma once
// kv_transfer_params, as vLLM's NIXL connector and its proxies write them: null counts as absent,
// unknown members are left alone.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/kv_transfer/peers/peer_list.h"
#include "engine/kv_transfer/plane/data_plane.h"

namespace quire {

struct TransferParams {
  bool keep = false;               // do_remote_decode: somebody else will go on
  std::optional<KvSource> source;  // do_remote_prefill: somebody else has begun
  int num_tokens = 0;              // that the source has; 0: it has only begun
  std::string push_key = {};       // with `keep`: it is sent while it is computed, by that name
  std::string kept_name = {};  // with `keep` over Mooncake: as both sides were told; empty: ours
};

// `peers` are the only sources. The error's field is a JSON pointer. `pushes`: over NIXL whoever
// prefills writes.
Result<TransferParams> parse_transfer_params(const std::string& json, const PeerList& peers,
                                             KvPlane plane = KvPlane::local, bool pushes = false);

// Refuses what only a connector can do, for an engine that has none.
Result<void> refuse_transfer(const std::string& json);

struct KeptDescription {
  SocketAddress address;
  std::string engine;
  KvKey prefill;
  int num_tokens = 0;
  // Over NIXL: by group, and a hash that only other Quire servers read.
  std::vector<std::vector<std::int64_t>> blocks = {};
  std::optional<std::uint64_t> prompt_hash = {};
  bool pushed = false;
};

// What whoever continues is told.
std::string transfer_result(const KeptDescription& kept);

}  // namespace quire
