#pragma once
// Joins scheduler, cache and transfer: finished prefills are copied out of their blocks and kept
// for others, what others kept is fetched and filled into blocks. These are never shared with the
// network. Engine thread only.

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "engine/config.h"
#include "engine/kv_nixl/nixl_library.h"
#include "engine/kv_transfer/connector.h"
#include "engine/kv_transfer/memory/kept_prefills.h"
#include "engine/kv_transfer/nixl/exports.h"
#include "engine/kv_transfer/pages/cache_pages.h"
#include "engine/kv_transfer/pages/divided_pages.h"
#include "engine/kv_transfer/pages/filler.h"
#include "engine/kv_transfer/pages/pushed_prefills.h"
#include "engine/kv_transfer/plane/data_plane.h"
#include "engine/kv_transfer/transfer_buffers.h"
#include "engine/kv_transfer/transfer_params.h"
#include "engine/request/engine_stats.h"

namespace quire {

// What vLLM servers hash of a model, as the peers over NIXL were given it.
struct HashedModel {
  std::string model;
  std::string dtype;  // of the weights
  int num_hidden_layers = 0;
  std::string draft_method = {}, draft_model = {};  // empty: no draft model
};

struct TransferSetup {
  KvTransferConfig config;
  EngineId engine;
  KvGeometry geometry;             // of the whole model
  std::vector<LayerCache> layers;  // as the geometry's
  OtherRanks* ranks = nullptr;     // of a divided model
  std::vector<RankRow> rank_rows;  // by layer, what this rank has
  TransferBuffers buffers;
  HashedModel hashed;
  int longest_prompt = 0;  // tokens
  std::function<void()> wake;
};

class TransferConnector final : public Connector {
 public:
  // Throws Failure where it cannot listen.
  TransferConnector(Device& device, TransferSetup setup);
  ~TransferConnector() override;

  // Before the scheduler sees the request: whether its kv_transfer_params can be followed. May
  // shorten the prompt, where what is kept must end before its last token.
  struct Asked {
    const std::string& params;
    const std::string& name;  // see AddRequest::transfer_name
  };
  Result<void> admit(RequestId id, Asked asked, const SamplingParams& sampling,
                     std::vector<TokenId>& prompt);
  // Forgets a request that the scheduler refused. `may_come_again`: there was no room, and what
  // others keep for it is left to whoever is asked next.
  void forget(RequestId id, bool may_come_again);
  // Tells others of a request that never got so far: whoever keeps what it was to fetch, where it
  // may be asked, or whoever waits for what it was to keep.
  void refused(Asked asked);
  // Tells whoever waits to be sent a prefill of that name that there is none, or where else it
  // is.
  void not_here(const std::string& name, const std::string& elsewhere);

  std::optional<ExternalMatch> match(const Request& request, int num_computed) override;
  void allocated(const Request& request, const std::vector<std::span<const BlockId>>& blocks,
                 int num_external) override;
  bool follows(const Request& request) const override;
  void computed(const Request& request, const std::vector<std::span<const BlockId>>& blocks,
                int num_computed) override;
  ReleaseDecision finished(const Request& request,
                           const std::vector<std::span<const BlockId>>& blocks) override;
  std::span<const BlockId> unshareable(const Request& request) override;

  // Takes what has arrived into its blocks, for no longer than this and a part; what is left is
  // filled in beside the steps, or has its turn with the next call. Valid until then.
  struct News {
    std::vector<RequestId> received;
    std::vector<BlockId> invalid_blocks;
  };
  const News& take_news(std::chrono::nanoseconds patience);
  // What has arrived needs none of the engine's time where nobody waits for it.
  bool fills_beside() const { return filler_ && filler_->works_beside(); }
  bool is_copying() const { return filler_ && filler_->needs_work(); }

  KvTransferStats stats() const;
  std::uint16_t port() const { return plane_->port(); }
  std::string listens_at() const { return config_.prefills() ? listen_.text() : ""; }

 private:
  struct Entry {
    TransferParams params;
    bool asked = false;  // a request fetches once
    bool loading = false;
    bool abandoned = false;  // it ended meanwhile
    int from = 0;            // tokens that were here
    std::uint64_t prompt_hash = 0;
    BlockTable blocks;
    std::vector<BlockId> partly_filled;
  };
  int num_to_keep(int num_prompt) const { return num_prompt - (has_states_ ? 1 : 0); }
  static void name_push(TransferParams& params, const std::string& own);
  Result<void> admit_source(TransferParams& params, RequestId id, std::span<const TokenId> prompt);
  void start_local(TransferSetup& setup, std::chrono::seconds lease);
  void start_nixl(TransferSetup& setup, std::chrono::seconds lease);
  void start_nixl_push(TransferSetup& setup, std::chrono::seconds lease);
  void start_mooncake(TransferSetup& setup, std::chrono::seconds lease);
  bool is_of_another(const std::string& kept_name, std::uint64_t hash) const;
  void fail_kept(const TransferParams& params, KvLossReason why);
  static bool is_pushed(const Entry& entry) { return !entry.params.push_key.empty(); }
  std::string keep(const Request& request, const BlockTable& blocks, const TransferParams& params);
  bool keep_local(const Request& request, const BlockTable& blocks, KeptDescription& kept);
  bool keep_blocks(const Request& request, const BlockTable& blocks, KeptDescription& kept);
  void end_load(const KvFetched& fetched, Entry& entry, bool is_whole);
  void lose(KvLossReason reason, RequestId request, const std::string& detail);

  const KvTransferConfig config_;
  const KvGeometry geometry_;
  const bool has_states_;
  const PeerList peers_;
  const std::string engine_;  // random: another with each start
  std::unique_ptr<CachePages> pages_;
  std::optional<KeptPrefills> kept_;  // on the plane local
  std::optional<PushedPrefills> pushed_;
  std::optional<NixlLibrary> nixl_;  // on the plane nixl, as what follows
  std::optional<NixlExports> exports_;
  std::optional<StagingBuffer> arriving_;
  SocketAddress listen_;
  std::unordered_map<RequestId, Entry> entries_;
  std::optional<PageFiller> filler_;  // of one that decodes
  std::array<std::int64_t, kKvLossNames.size()> losses_{};
  std::int64_t not_kept_ = 0;
  std::uint64_t num_refused_ = 0;
  News news_;
  std::unique_ptr<DataPlane> plane_;  // last: it uses what is above
};

}  // namespace quire
