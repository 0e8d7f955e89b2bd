#include "engine/kv_transfer/mooncake/inbox.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <boost/asio/awaitable.hpp>
#include <cstring>
#include <random>
#include <utility>

#include "engine/kv_transfer/peers/listener.h"

namespace quire {
namespace {

constexpr std::size_t kReadAtOnce = 256 << 10;
constexpr std::int64_t kLargestGap = 4096;

}  // namespace

MooncakeInbox::MooncakeInbox(asio::any_io_executor executor, const SocketAddress& address,
                             const MooncakeSelf& self, MooncakeInboxOptions options)
    : executor_(executor),
      address_(address),
      self_(self),
      options_(options),
      hello_(listen_for_peers(address)),
      data_(listen_for_peers(with_port(address, 0))),
      visitors_(options.max_connections) {
  std::int64_t largest = 1;
  for (std::size_t i = 0; i < self.geometry.layers.size(); ++i)
    largest = std::max(largest, self.block_bytes(i) * self.ratio());
  most_ids_ = static_cast<std::int64_t>(kMooncakeRegionBytes) / largest;
}

std::int64_t MooncakeInbox::next_first_id(std::int64_t num_ids) {
  static thread_local std::mt19937_64 random{std::random_device()()};
  next_id_ += std::uniform_int_distribution<std::int64_t>(1, kLargestGap)(random);
  if (next_id_ + num_ids > most_ids_) next_id_ = 1;
  return std::exchange(next_id_, next_id_ + num_ids);
}

void MooncakeInbox::open(std::shared_ptr<MooncakeWindow> window) {
  const std::int64_t first = window->landing.first_id();
  windows_[first] = std::move(window);
}

void MooncakeInbox::close(MooncakeWindow& window) {
  window.is_open = false;
  const auto found = windows_.find(window.landing.first_id());
  if (found != windows_.end() && found->second.get() == &window) windows_.erase(found);
}

std::shared_ptr<MooncakeWindow> MooncakeInbox::find(const MooncakeWrite& write,
                                                    std::int64_t& at) const {
  for (const auto& [first, window] : windows_) {
    const auto place = window->landing.place(write.address, write.bytes);
    if (!place) continue;
    at = *place;
    return window;
  }
  return nullptr;
}

MooncakeSegment MooncakeInbox::segment() const {
  MooncakeSegment segment{.name = fmt::format("{}:{}", address_.host, port()),
                          .data_port = port_of(data_)};
  for (const MooncakeRegion& region : mooncake_regions(self_))
    segment.memory.push_back({region.address, kMooncakeRegionBytes});
  return segment;
}

awaitable<void> MooncakeInbox::accept_hellos(TaskGroup& sessions) {
  return accept(sessions, hello_, true);
}
awaitable<void> MooncakeInbox::accept_writes(TaskGroup& sessions) {
  return accept(sessions, data_, false);
}

awaitable<void> MooncakeInbox::accept(TaskGroup& sessions, const Descriptor& listener,
                                      bool is_hello) {
  return accept_peers(
      executor_, listener, sessions,
      {.make_place = [this] { return visitors_.make_place(); },
       .serve = [this, is_hello](Descriptor socket) { return serve(std::move(socket), is_hello); }});
}

awaitable<void> MooncakeInbox::serve(Descriptor socket, bool is_hello) {
  ByteLine line(executor_, std::move(socket), options_.silence);
  bool is_idle = true;
  Visitors::Visit visit(
      visitors_, [&line] { line.hang_up(); }, [&is_idle] { return is_idle; });
  if (is_hello) co_return co_await answer_hello(line);
  const auto begun = [&] {
    is_idle = false;
    visit.was_of_use();
  };
  while (co_await line.has_come(options_.idle)) {
    co_await take_write(line, begun);
    is_idle = true;
  }
}

// One question, one answer; what the other side says of its own memory is of no use here.
awaitable<void> MooncakeInbox::answer_hello(ByteLine& line) {
  line.allow(options_.silence);
  std::uint64_t size = 0;
  co_await line.read(std::as_writable_bytes(std::span(&size, 1)));
  if (size == 0 || size > kMaxSegmentBytes)
    throw KvLost(KvLossReason::corrupt, fmt::format("a handshake has {} bytes", size));
  const std::string body = co_await line.read_text(size);
  const auto hello = parse_mooncake_hello(body);
  if (!hello) throw KvLost(KvLossReason::corrupt, hello.error().detail);
  std::string answer;
  if (hello->kind == MooncakeHello::metadata) answer = segment_json(segment());
  if (hello->kind == MooncakeHello::probe) answer = R"({"status":"success"})";
  if (hello->kind == MooncakeHello::notify) answer = R"({"name":"","notify_msg":"success"})";
  if (answer.empty()) throw KvLost(KvLossReason::refused, "a handshake for RDMA; TCP is spoken");
  const std::string frame = mooncake_hello(hello->kind, answer);
  co_await line.write(frame);
  line.end_writing();
  co_await line.has_come(options_.silence);  // until the other end has taken it
}

awaitable<void> MooncakeInbox::take_write(ByteLine& line, std::function<void()> begun) {
  MooncakeHeader header{};
  line.allow(options_.silence);
  co_await line.read(header);
  const auto write = parse_mooncake_write(header);
  std::int64_t at = 0;
  const auto window = write && !write->is_read ? find(*write, at) : nullptr;
  if (window == nullptr) {
    const auto refused = mooncake_status(false);
    if (write && write->wants_status) co_await line.write(std::span(refused));
    throw KvLost(
        KvLossReason::refused,
        write ? fmt::format("a peer {} {} bytes at {:#x}, which no fetch waits for",
                            write->is_read ? "asked for" : "wrote", write->bytes, write->address)
              : std::string("a frame of no known operation"));
  }
  begun();
  std::vector<std::byte> nowhere;
  for (std::uint64_t done = 0; done < write->bytes;) {
    const std::size_t size = std::min<std::uint64_t>(kReadAtOnce, write->bytes - done);
    // Held, so that it is not used for something else meanwhile.
    const std::shared_ptr<StagedRange> memory = window->memory;
    std::span<std::byte> into;
    if (memory != nullptr) {
      into = memory->bytes().subspan(static_cast<std::size_t>(at) + done, size);
    } else {
      nowhere.resize(size);
      into = nowhere;
    }
    line.allow(options_.silence);
    co_await line.read(into);
    if (!window->is_open) throw KvLost(KvLossReason::refused, "the fetch has ended meanwhile");
    done += size;
    co_await line.let_others();
  }
  window->landing.arrived(at, static_cast<std::int64_t>(write->bytes));
  window->changed();
  line.allow(options_.silence);
  const auto taken = mooncake_status(true);
  if (write->wants_status) co_await line.write(std::span(taken));
}

}  // namespace quire
