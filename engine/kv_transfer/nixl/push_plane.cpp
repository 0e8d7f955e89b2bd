#include "engine/kv_transfer/nixl/push_plane.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/kv_transfer/blocks/shape.h"
#include "engine/kv_transfer/blocks/state_layout.h"

namespace quire {
namespace {

class PushSide final : public NixlSide {
 public:
  PushSide(const NixlSelf& self, NixlThread::Parts parts, NixlPushPlaneOptions options,
           KeptPrefills* kept, StagingBuffer* arriving)
      : self_(self), block_size_(options.block_size), wake_(parts.wake), kept_(kept) {
    if (arriving != nullptr) begin_receiving(parts, std::move(options.receiver), *arriving);
    if (kept == nullptr) return;
    sender_.emplace(self, parts.remotes, *kept, std::move(options.sender));
    kept->on_kept(std::move(parts.knock));
  }
  ~PushSide() override {
    if (kept_ != nullptr) kept_->on_kept([] {});
  }

  KvFetcher* fetcher() override { return receiver_ ? &*receiver_ : nullptr; }
  const KvTrafficCounts& sent() const override {
    static const KvTrafficCounts kNone;
    return sender_ ? sender_->counts() : kNone;
  }

  std::vector<std::span<std::byte>> memory() const override {
    std::vector<std::span<std::byte>> memory;
    if (slots_) memory.push_back(slots_->memory());
    if (sender_) memory.push_back(sender_->scratch());
    return memory;
  }

  void describe(NixlMetadata& metadata) const override;
  std::string answer(std::string_view question) override {
    const auto names = parse_push_question(question);
    if (!names || !sender_) return {};
    return encode_push_states(sender_->states_of(*names));
  }
  bool take_notice(const std::string& agent, const std::string& notice) override;
  bool awaits_notices() const override {
    return next_end_ || (receiver_ && receiver_->is_waiting()) ||
           (sender_ && sender_->is_waiting());
  }

  Clock::time_point step() override {
    auto next = receiver_ ? receiver_->step() : Clock::time_point::max();
    if (!sender_) return next;
    next = std::min(next, sender_->step());
    std::vector<std::string> expired;
    next_end_ = kept_->expire(Clock::now(), expired);
    sender_->gone(expired);
    // Whoever counts it looks when something is said to be new.
    const std::int64_t used = kept_->used_bytes();
    if (std::exchange(used_bytes_, used) != used) wake_();
    return std::min(next, next_end_.value_or(next));
  }

 private:
  void begin_receiving(const NixlThread::Parts& parts, NixlPushReceiverOptions options,
                       StagingBuffer& arriving);

  const NixlSelf& self_;
  const int block_size_;
  const std::function<void()> wake_;
  KeptPrefills* const kept_;
  std::shared_ptr<StagedRange> slot_memory_;
  std::optional<NixlSlots> slots_;
  std::optional<NixlPushSender> sender_;
  std::optional<NixlPushReceiver> receiver_;
  std::optional<Clock::time_point> next_end_;  // of a lease
  std::int64_t used_bytes_ = 0;
};

// Half of the buffer is for blocks, the rest for the rows that they become.
void PushSide::begin_receiving(const NixlThread::Parts& parts, NixlPushReceiverOptions options,
                               StagingBuffer& arriving) {
  slot_memory_ = arriving.take_apart(arriving.size() / 2);
  slots_.emplace(slot_memory_->bytes(), self_.geometry, self_.regions, block_size_);
  receiver_.emplace(self_, parts.remotes, *slots_, arriving, std::move(options), parts.wake);
}

// Whoever only prefills has no blocks to name; vLLM wants some, and gets what is written from.
void PushSide::describe(NixlMetadata& metadata) const {
  const BlockShape shape = block_shape(self_.geometry, self_.regions, block_size_);
  const std::vector<std::int64_t>& bytes = shape.region_bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::byte* const at =
        slots_ ? slots_->regions()[i].bytes.data() : sender_->scratch().data();
    metadata.base_addresses.push_back(reinterpret_cast<std::uint64_t>(at));
    metadata.block_lens.push_back(static_cast<std::uint64_t>(bytes[i]));
    metadata.memories.push_back(static_cast<std::int32_t>(NixlMemory::dram));
  }
  metadata.block_strides = metadata.block_lens;
  metadata.num_blocks =
      static_cast<std::uint64_t>(slots_ ? slots_->num_kernel_blocks() : shape.ratio);
  metadata.kernel_blocks_per_block = shape.ratio;
  if (const KvStateGeometry* const state = first_state(self_.geometry)) {
    const StateBytes parts = state_bytes(*state);
    metadata.state_bytes = {static_cast<std::uint64_t>(parts.conv()),
                            static_cast<std::uint64_t>(parts.rest)};
  }
  metadata.block_size = block_size_;
  metadata.quire->sums_address =
      slots_ ? slots_->sums_address() : reinterpret_cast<std::uint64_t>(sender_->scratch().data());
}

bool PushSide::take_notice(const std::string& agent, const std::string& notice) {
  if (notice.starts_with(kPushRegistration)) {
    if (sender_) sender_->register_push(agent, notice);
    return sender_.has_value();
  }
  if (notice.starts_with("HB:")) {
    if (sender_) sender_->renew(std::string_view(notice).substr(3));
    return true;
  }
  if (const auto forgotten = parse_push_forgotten(notice)) {
    if (sender_) sender_->forget(agent, *forgotten);
    return sender_.has_value();
  }
  if (const auto lost = parse_push_lost(notice))
    return receiver_ && receiver_->was_lost(agent, *lost);
  const auto done = parse_nixl_done(notice);
  return done && receiver_ && receiver_->was_written(agent, *done);
}

}  // namespace

std::unique_ptr<DataPlane> make_nixl_push_plane(NixlPushPlaneOptions options, KeptPrefills* kept,
                                                StagingBuffer* arriving,
                                                std::function<void()> wake) {
  options.sender.engine = options.receiver.engine = options.thread.engine;
  options.sender.block_size = options.block_size;
  options.receiver.address = *options.thread.listen;
  options.receiver.silence = options.thread.silence;
  NixlThreadOptions thread = std::move(options.thread);
  return std::make_unique<NixlThread>(
      std::move(thread), std::move(wake), [&](const NixlSelf& self, NixlThread::Parts parts) {
        options.receiver.address.port = parts.port;
        return std::make_unique<PushSide>(self, std::move(parts), std::move(options), kept,
                                          arriving);
      });
}

}  // namespace quire
