#include "engine/kv_transfer/mooncake/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <iterator>
#include <utility>

#include "engine/kv_mooncake/write_frame.h"
#include "engine/kv_nixl/block_ids.h"
#include "engine/kv_transfer/blocks/state_layout.h"
#include "engine/kv_transfer/content/checksum.h"

namespace quire {
namespace {

constexpr std::size_t kWriteAtOnce = 1 << 20;
constexpr int kMostUnanswered = 64;  // writes; their answers fit any socket's buffer

class Line {
 public:
  Line(std::unique_ptr<ByteLine> line, bool has_status, std::chrono::nanoseconds patience)
      : line_(std::move(line)), has_status_(has_status), patience_(patience) {}

  awaitable<void> write(std::uint64_t address, std::span<const std::byte> bytes) {
    const MooncakeHeader header =
        encode({.address = address, .bytes = bytes.size(), .wants_status = has_status_});
    line_->allow(patience_);  // of a frame
    co_await line_->write(std::span(header));
    co_await line_->write(bytes);
    if (has_status_ && ++unanswered_ >= kMostUnanswered) co_await take_answer();
    co_await line_->let_others();
  }
  awaitable<void> settle() {
    while (unanswered_ > 0) co_await take_answer();
  }

 private:
  awaitable<void> take_answer() {
    MooncakeStatusFrame frame{};
    line_->allow(patience_);
    co_await line_->read(frame);
    --unanswered_;
    if (!is_taken(frame))
      throw KvLost(KvLossReason::refused, "the other end does not take what is written");
  }

  const std::unique_ptr<ByteLine> line_;
  const bool has_status_;
  const std::chrono::nanoseconds patience_;
  int unanswered_ = 0;
};

awaitable<MooncakeSegment> segment_of(asio::any_io_executor executor, SocketAddress address,
                                      std::chrono::nanoseconds silence) {
  const auto line = co_await connect_line(executor, address, silence);
  line->allow(silence);
  MooncakeSegment own{.name = "quire"};
  own.data_port = 1;  // where nobody writes
  const std::string question = mooncake_hello(MooncakeHello::metadata, segment_json(own));
  co_await line->write(question);
  std::uint64_t size = 0;
  const auto head = std::as_writable_bytes(std::span(&size, 1));
  co_await line->read(head);
  if (size == 0 || size > kMaxSegmentBytes)
    throw KvLost(KvLossReason::corrupt, fmt::format("its handshake has {} bytes", size));
  const std::string body = co_await line->read_text(size);
  const auto hello = parse_mooncake_hello(body);
  if (!hello || hello->kind != MooncakeHello::metadata)
    throw KvLost(KvLossReason::corrupt, "its handshake is of another kind");
  auto segment = parse_segment(hello->json);
  if (!segment) throw KvLost(KvLossReason::corrupt, segment.error().detail);
  co_return std::move(*segment);
}

// Consecutive blocks that are written in one go: as many as follow each other there.
std::size_t run_of(const MooncakeRegion& region, std::span<const std::int64_t> ids) {
  if (region.stride != region.payload) return 1;
  const std::size_t most = std::max<std::size_t>(1, kWriteAtOnce / region.payload);
  std::size_t count = 1;
  while (count < ids.size() && count < most && ids[count] == ids[count - 1] + 1) ++count;
  return count;
}

// By the kernel's, and which of the prompt's the first one is: those before it are there already.
struct Blocks {
  std::vector<std::int64_t> ids;
  int first = 0;
};

Blocks blocks_of(const MooncakeShare& share, std::span<const std::int64_t> named,
                 const KeptPrefill& prefill) {
  if (share.block_size == 0) {  // vLLM has a null block where it has no state
    Blocks state;
    std::ranges::copy_if(named, std::back_inserter(state.ids), [](auto id) { return id != 0; });
    if (state.ids.size() > 1)
      throw KvLost(
          KvLossReason::prompt,
          fmt::format("P num blocks less than D: one state is kept, not {}", state.ids.size()));
    return state;
  }
  const int size = share.block_size * share.ratio;
  const int total = (prefill.content.num_tokens + size - 1) / size;
  if (named.size() > static_cast<std::size_t>(total))
    throw KvLost(KvLossReason::prompt,
                 fmt::format("P num blocks less than D: {} tokens have {} blocks of {}, not {}",
                             prefill.content.num_tokens, total, size, named.size()));
  return {kernel_blocks(named, share.ratio, false),
          (total - static_cast<int>(named.size())) * share.ratio};
}

// Of the rank that asks, in a block of zeros.
void fill_block(const MooncakeSelf& self, const MooncakeAsk& ask, const MooncakeShare& share,
                int block, const KeptPrefill& prefill, std::span<std::byte> into) {
  const std::span<const std::byte> bytes = prefill.range->bytes();
  const KvLayerGeometry& layer = self.geometry.layers[share.layer];
  if (!layer.is_state()) {
    const BlockPlace place{.layer = share.layer,
                           .first_token = block * share.block_size,
                           .num_tokens = share.block_size,
                           .first_head = share.first_head,
                           .num_heads = share.num_heads};
    return content_to_block(self.geometry, place, prefill.content, bytes, into);
  }
  const auto strip =
      std::ranges::find(prefill.content.strips, static_cast<int>(share.layer), &KvStrip::layer);
  state_to_rank(layer.state,
                bytes.subspan(static_cast<std::size_t>(strip->offset),
                              static_cast<std::size_t>(layer.row_bytes)),
                ask.tensor_rank, ask.tensor_ranks, into);
}

}  // namespace

void check_mooncake_host(const PeerList& peers, const std::string& asker, MooncakeAsk& ask) {
  const std::string host = ask.host == "localhost" ? "127.0.0.1" : numeric_host(ask.host);
  const SocketAddress to{.path = {}, .host = host, .port = ask.port};
  const SocketAddress from{.path = {}, .host = asker, .port = 0};
  const bool is_own = host == asker || (to.is_loopback() && from.is_loopback());
  if (host.empty() || (!is_own && !peers.allows(to)))
    throw KvLost(KvLossReason::refused,
                 fmt::format("remote_hostname must be the asker's address, {}, or a number among "
                             "KvTransferConfig::peers ({})",
                             asker, peers.names()));
  ask.host = host;
}

awaitable<MooncakeSum> write_mooncake(asio::any_io_executor executor, const MooncakeSelf& self,
                                      const MooncakeAsk& ask, const MooncakeWanted& wanted,
                                      std::shared_ptr<const KeptPrefill> prefill,
                                      std::chrono::nanoseconds silence,
                                      std::function<void()> check) {
  const std::vector<MooncakeShare> shares = mooncake_shares(self, ask);
  MooncakeSum sum;
  sum.first_rows = mooncake_first_rows(prefill->content, shares, !ask.geometry.empty());
  sum.sum = mooncake_sum_seed(wanted.transfer, sum.first_rows);
  const SocketAddress hello{.path = {}, .host = ask.host, .port = ask.port};
  const MooncakeSegment segment = co_await segment_of(executor, hello, silence);
  const SocketAddress data{.path = {}, .host = ask.host, .port = segment.data_port};
  auto connected = co_await connect_line(executor, data, silence);
  Line line(std::move(connected), segment.has_status, silence);
  std::vector<std::byte> scratch;
  for (std::size_t r = 0; r < shares.size(); ++r) {
    const MooncakeRegion& region = ask.regions[r];
    auto [all, block] =
        blocks_of(shares[r], wanted.blocks[static_cast<std::size_t>(region.group)], *prefill);
    std::span<const std::int64_t> ids = all;
    while (!ids.empty()) {
      check();
      const std::size_t count = run_of(region, ids);
      const auto size = static_cast<std::size_t>(region.payload);
      const std::uint64_t address =
          region.address + static_cast<std::uint64_t>(ids.front()) * region.stride;
      if (!segment.covers(address, count * size))
        throw KvLost(KvLossReason::refused,
                     fmt::format("block {} of {} is not in memory that the other side offers",
                                 ids.front(), region.layer));
      scratch.assign(count * size, std::byte{0});
      for (std::size_t i = 0; i < count; ++i, ++block) {
        const auto one = std::span(scratch).subspan(i * size, size);
        fill_block(self, ask, shares[r], block, *prefill, one);
        sum.sum = kv_checksum(one, sum.sum);
      }
      co_await line.write(address, scratch);
      sum.bytes += static_cast<std::int64_t>(scratch.size());
      ids = ids.subspan(count);
    }
  }
  co_await line.settle();
  co_return sum;
}

}  // namespace quire
