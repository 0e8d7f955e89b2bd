#include "engine/kv_transfer/nixl/plane.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/kv_nixl/push_registration.h"
#include "engine/kv_transfer/blocks/state_layout.h"

namespace quire {
namespace {

class PullSide final : public NixlSide {
 public:
  PullSide(const NixlSelf& self, NixlThread::Parts parts, NixlPullerOptions options,
           NixlExports* exports, StagingBuffer* arriving)
      : self_(self), wake_(parts.wake), exports_(exports), arriving_(arriving) {
    if (arriving != nullptr)
      puller_.emplace(self, parts.remotes, *arriving, options, std::move(parts.wake));
    if (exports != nullptr) exports->on_kept(std::move(parts.knock));
  }
  ~PullSide() override {
    if (exports_ != nullptr) exports_->on_kept([] {});
  }

  KvFetcher* fetcher() override { return puller_ ? &*puller_ : nullptr; }
  const KvTrafficCounts& sent() const override { return sent_; }

  std::vector<std::span<std::byte>> memory() const override {
    std::vector<std::span<std::byte>> memory;
    if (exports_ != nullptr) memory.push_back(exports_->memory());
    if (arriving_ != nullptr) memory.push_back(arriving_->all());
    return memory;
  }

  void describe(NixlMetadata& metadata) const override;
  bool take_notice(const std::string& agent, const std::string& notice) override;
  bool awaits_notices() const override { return next_end_.has_value(); }

  Clock::time_point step() override {
    auto next = puller_ ? puller_->step() : Clock::time_point::max();
    if (exports_ == nullptr) return next;
    const std::int64_t expired = exports_->counts().expired;
    next_end_ = exports_->expire(Clock::now());
    if (exports_->counts().expired != expired) wake_();
    return std::min(next, next_end_.value_or(next));
  }

 private:
  void count_reads();

  const NixlSelf& self_;
  const std::function<void()> wake_;
  NixlExports* const exports_;
  StagingBuffer* const arriving_;
  std::optional<NixlPuller> puller_;
  KvTrafficCounts sent_;
  std::optional<Clock::time_point> next_end_;  // of a lease
};

void PullSide::describe(NixlMetadata& metadata) const {
  for (const NixlExports::Region& region : exports_->regions()) {
    metadata.base_addresses.push_back(region.address);
    metadata.block_lens.push_back(region.block_bytes);
    metadata.memories.push_back(static_cast<std::int32_t>(NixlMemory::dram));
  }
  metadata.block_strides = metadata.block_lens;
  metadata.num_blocks = static_cast<std::uint64_t>(exports_->num_blocks());
  metadata.block_size = NixlExports::kBlockSize;
  metadata.kernel_blocks_per_block = exports_->ratio();
  if (const KvStateGeometry* const state = first_state(self_.geometry)) {
    const StateBytes bytes = state_bytes(*state);
    metadata.state_bytes = {static_cast<std::uint64_t>(bytes.conv()),
                            static_cast<std::uint64_t>(bytes.rest)};
  }
  metadata.quire->sums_address = exports_->sums_address();
}

bool PullSide::take_notice(const std::string&, const std::string& notice) {
  if (exports_ == nullptr) return false;
  if (notice.starts_with("HB:")) {
    std::string_view rest = std::string_view(notice).substr(3);
    while (!rest.empty()) {
      const auto comma = std::min(rest.find(','), rest.size());
      exports_->renew(std::string(rest.substr(0, comma)));
      rest.remove_prefix(std::min(rest.size(), comma + 1));
    }
    return true;
  }
  const auto done = parse_nixl_done(notice);
  if (!done) return false;
  exports_->was_read(done->request, done->ranks);
  count_reads();
  return true;
}

// The reads themselves are not seen on this side.
void PullSide::count_reads() {
  const NixlExports::Counts counts = exports_->counts();
  if (sent_.requests == counts.read) return;
  sent_.requests = counts.read;
  sent_.bytes = counts.read_bytes;
  wake_();
}

}  // namespace

std::unique_ptr<DataPlane> make_nixl_plane(NixlPlaneOptions options, NixlExports* exports,
                                           StagingBuffer* arriving, std::function<void()> wake) {
  return std::make_unique<NixlThread>(std::move(options.thread), std::move(wake),
                                      [&](const NixlSelf& self, NixlThread::Parts parts) {
                                        return std::make_unique<PullSide>(self, std::move(parts),
                                                                          options.puller, exports,
                                                                          arriving);
                                      });
}

}  // namespace quire
