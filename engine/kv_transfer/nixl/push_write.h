#pragma once
// A kept prefill on its way into the blocks of whoever registered for it, over NIXL: which bytes go
// where, a part at a time, whatever the size of their blocks and whichever heads their ranks have.
// Pure.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/kv_nixl/nixl_agent.h"
#include "engine/kv_nixl/push_registration.h"
#include "engine/kv_transfer/memory/kept_prefills.h"
#include "engine/kv_transfer/nixl/peer.h"

namespace quire {

class NixlPushWrite {
 public:
  using Ranks = std::shared_ptr<const std::vector<NixlPeerRank>>;
  // `self` outlives it. Throws KvLost where the blocks do not fit what is kept.
  NixlPushWrite(const NixlSelf& self, Ranks ranks, std::shared_ptr<const KeptPrefill> prefill,
                const NixlPushRegistration& registration);

  // A scratch must hold one block of every layer, or its state.
  static std::int64_t least_scratch_bytes(const KvGeometry& geometry, int block_size);

  struct Part {
    std::size_t rank = 0;
    std::vector<NixlCopy> copies;  // from the scratch; empty: that rank has nothing to get
    bool ends_rank = false;
  };
  // The next one, in the scratch. Empty: that was all.
  std::optional<Part> next(std::span<std::byte> scratch);
  std::int64_t bytes() const { return bytes_; }  // of the parts until now

 private:
  // Blocks of one group, by the kernel's; of a state its first.
  struct Group {
    std::vector<std::int64_t> ids;
    int first_token = 0;
    std::vector<std::uint64_t> sums;
  };
  const NixlMetadata& metadata() const { return (*ranks_)[rank_].metadata; }
  void add_group(std::span<const std::int64_t> ids);
  void check_ids(std::span<const std::int64_t> ids, bool is_state) const;
  void check_windows() const;
  bool add_blocks(std::span<std::byte>& scratch, Part& part);
  bool add_block(Group& group, std::span<std::byte>& scratch, Part& part);
  bool add_state(Group& group, std::span<std::byte>& scratch, Part& part);
  bool add_sums(std::span<std::byte>& scratch, Part& part);
  BlockPlace place_of(std::size_t layer, std::size_t block) const;
  std::uint64_t address_of(std::int64_t block) const;  // of the layer's whose turn it is

  const NixlSelf& self_;
  const Ranks ranks_;
  const std::shared_ptr<const KeptPrefill> prefill_;
  std::vector<Group> groups_;
  // What comes next.
  std::size_t rank_ = 0, layer_ = 0, block_ = 0, group_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace quire
