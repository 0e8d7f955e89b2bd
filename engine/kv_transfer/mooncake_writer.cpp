#include "engine/kv_transfer/mooncake_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "engine/kv_mooncake/write_frame.h"
#include "engine/kv_transfer/checksum.h"

namespace quire {
namespace {

constexpr std::size_t kWriteAtOnce = 1 << 20;
constexpr std::uint64_t kMostBlockTokens = 1 << 14;
constexpr int kMostUnanswered = 64;  // writes; their answers fit any socket's buffer

[[noreturn]] void differs(const std::string& why) { throw KvLost(KvLossReason::incompatible, why); }

// Of heads that ranks share or have several of.
MooncakeShare heads_of(const KvLayerGeometry& layer, const MooncakeAsk& ask) {
  if (layer.planes == 1) return {.num_heads = layer.heads};  // a latent is everybody's
  const int ranks = ask.tensor_ranks;
  const bool divides = ranks <= layer.heads ? layer.heads % ranks == 0 : ranks % layer.heads == 0;
  if (!divides)
    differs(fmt::format("remote_tp_size is {}, which does not divide the {} heads of keys of {}",
                        ranks, layer.heads, layer.name));
  return {.first_head = static_cast<int>(std::int64_t{ask.tensor_rank} * layer.heads / ranks),
          .num_heads = std::max(1, layer.heads / ranks)};
}

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

}  // namespace

std::vector<MooncakeShare> mooncake_shares(const MooncakeSelf& self, const MooncakeAsk& ask) {
  const std::vector<int> numbers = mooncake_layer_numbers(self.geometry);
  std::vector<MooncakeShare> shares;
  std::vector<bool> seen(numbers.size(), false);
  for (const MooncakeRegion& region : ask.regions) {
    const auto found = std::ranges::find(numbers, region.layer_index);
    const auto i = static_cast<std::size_t>(found - numbers.begin());
    if (found == numbers.end() || seen[i])
      differs(
          fmt::format("layer {} there is layer {}, which is not one of this model's {} or is "
                      "registered twice",
                      region.layer, region.layer_index, numbers.size()));
    seen[i] = true;
    const KvLayerGeometry& layer = self.geometry.layers[i];
    if (region.group != self.regions.group_of_layer[i])
      differs(fmt::format("layer {} is in KV group {} here and {} there", layer.name,
                          self.regions.group_of_layer[i], region.group));
    MooncakeShare share = heads_of(layer, ask);
    share.layer = i;
    const auto token = static_cast<std::uint64_t>(block_bytes(layer, 1, share.num_heads));
    share.block_size =
        static_cast<int>(std::min<std::uint64_t>(region.payload / token, kMostBlockTokens));
    if (region.payload == 0 || region.payload % token != 0 ||
        region.payload != token * static_cast<std::uint64_t>(share.block_size) ||
        region.stride < region.payload)
      differs(fmt::format(
          "kv_block_lens of layer {} are {} there, which are not blocks of {} "
          "bytes a token ({} heads of {} {})",
          layer.name, region.payload, token, share.num_heads, layer.head_size, layer.dtype));
    shares.push_back(share);
  }
  if (shares.size() != numbers.size())
    differs(
        fmt::format("{} layers keep something here and {} there", numbers.size(), shares.size()));
  return shares;
}

void check_mooncake_ask(const MooncakeSelf& self, const MooncakeAsk& ask) {
  if (ask.layout != 0 && ask.regions.empty())
    throw KvLost(KvLossReason::incompatible, "the layout was left out");
  if (ask.pipeline_ranks != 1)
    throw KvLost(KvLossReason::incompatible,
                 fmt::format("remote_pp_size is {}; 1 is written to", ask.pipeline_ranks));
  if (!ask.geometry.empty()) {
    const auto welcome = decode_kv<KvWelcome>(ask.geometry);
    if (!welcome) throw KvLost(KvLossReason::corrupt, "quire_geometry is broken");
    const std::string difference = geometry_difference(self.geometry, welcome->geometry);
    if (!difference.empty()) throw KvLost(KvLossReason::incompatible, difference);
  }
  mooncake_shares(self, ask);
}

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

std::vector<std::uint64_t> mooncake_first_rows(const KvContent& kept,
                                               std::span<const MooncakeShare> shares,
                                               bool is_told) {
  std::vector<std::uint64_t> first_rows(shares.size());
  for (const KvStrip& strip : kept.strips)
    first_rows[static_cast<std::size_t>(strip.layer)] = static_cast<std::uint64_t>(strip.first);
  for (const MooncakeShare& share : shares) {
    const std::uint64_t first = first_rows[share.layer];
    if (!is_told && first % static_cast<std::uint64_t>(share.block_size) != 0)
      differs(
          fmt::format("a layer with a window is kept from token {} on, within one of the blocks "
                      "of {} there; blocks of CacheConfig::block_size are exchanged",
                      first, share.block_size));
  }
  return first_rows;
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
  const int num_tokens = prefill->content.num_tokens;
  for (std::size_t r = 0; r < shares.size(); ++r) {
    const MooncakeRegion& region = ask.regions[r];
    const MooncakeShare& share = shares[r];
    std::span<const std::int64_t> ids = wanted.blocks[static_cast<std::size_t>(region.group)];
    const int total = (num_tokens + share.block_size - 1) / share.block_size;
    if (ids.size() > static_cast<std::size_t>(total))
      throw KvLost(KvLossReason::prompt,
                   fmt::format("P num blocks less than D: {} tokens have {} blocks of {}, not {}",
                               num_tokens, total, share.block_size, ids.size()));
    int block = total - static_cast<int>(ids.size());  // those behind what is there already
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
        const BlockPlace place{.layer = share.layer,
                               .first_token = block * share.block_size,
                               .num_tokens = share.block_size,
                               .first_head = share.first_head,
                               .num_heads = share.num_heads};
        content_to_block(self.geometry, place, prefill->content, prefill->range->bytes(), one);
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
