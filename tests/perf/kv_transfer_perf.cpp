// How fast a kept prefill is fetched and checked, beside a memcpy of as many bytes and a plain
// stream over the same kind of socket. Both ends run in this process, a thread each.
//
//   kv_transfer_perf [MiB] [rounds]
//   kv_transfer_perf MiB rounds --hosts NAMESPACE ADDRESS
//
// The second form has the owner in a network namespace (ip-netns) in which it listens at ADDRESS,
// and who fetches in the process's own: two hosts with what link lies between them.

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cpu/cpu_backend.h"
#include "engine/kv_transfer/content/checksum.h"
#include "engine/kv_transfer/memory/shared_region.h"
#include "engine/kv_transfer/quire/plane.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Rates {
  std::vector<double> samples;  // GB/s
  double best() const { return *std::max_element(samples.begin(), samples.end()); }
  double median() const {
    std::vector<double> sorted = samples;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

// A host: the network in which the sockets and threads that `act` makes have their place.
class Host {
 public:
  Host() : own_(open_network("/proc/self/ns/net")), network_(open_network("/proc/self/ns/net")) {}
  explicit Host(const std::string& name)
      : own_(open_network("/proc/self/ns/net")), network_(open_network("/run/netns/" + name)) {}

  template <class F>
  auto there(F act) const {
    enter(network_);
    auto made = act();
    enter(own_);
    return made;
  }

 private:
  static Descriptor open_network(const std::string& path) {
    Descriptor network(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (network.get() < 0) throw std::runtime_error(path + " cannot be opened");
    return network;
  }
  static void enter(const Descriptor& network) {
    if (::setns(network.get(), CLONE_NEWNET) != 0)
      throw std::runtime_error("a network namespace cannot be entered");
  }

  Descriptor own_, network_;
};

// 32 layers of 8 heads of 128 in bf16: 128 KiB a token.
KvGeometry geometry_of() {
  KvGeometry geometry{.model_fingerprint = "perf", .layers = {}};
  KvSpec spec;
  spec.num_kv_heads = 8;
  spec.head_size = 128;
  for (int i = 0; i < 32; ++i)
    geometry.layers.push_back(layer_geometry({"model.layers." + std::to_string(i), spec}, 16));
  return geometry;
}

class Pair {
 public:
  // `near`: the one who fetches reads the other's memory.
  Pair(const Host& host, const std::string& listen, std::int64_t bytes, bool near)
      : kept_memory_(near ? make_shared_buffer(static_cast<std::size_t>(bytes),
                                               MemoryPurpose::other, device_->ledger())
                          : SharedBuffer{device_->allocate_zeroed(static_cast<std::size_t>(bytes)),
                                         Descriptor()}),
        kept_(std::move(kept_memory_.memory), std::chrono::hours(1),
              std::move(kept_memory_.descriptor)),
        arriving_(device_->allocate_zeroed(static_cast<std::size_t>(bytes))) {
    QuirePlaneOptions owner, reader;
    owner.listen = *parse_socket_address(listen);
    owner.sender.engine = "owner";
    owner.sender.geometry = reader.receiver.geometry = geometry_of();
    owner_ = host.there([&] { return make_quire_plane(std::move(owner), &kept_, nullptr, [] {}); });
    reader_ = make_quire_plane(std::move(reader), nullptr, &arriving_,
                               [this] { eventually_.notify_one(); });
    source_.address = *parse_socket_address(listen);
    if (!source_.address.is_unix()) source_.address.port = owner_->port();
    source_.engine = "owner";
  }

  // Seconds of one fetch.
  double fetch(int num_tokens) {
    KeptPrefill kept;
    kept.key = "key";
    kept.generation = kept_.next_generation();
    kept.content = kv_content(geometry_of(), num_tokens);
    kept.range = kept_.make_room(kept.content.bytes);
    if (kept.range == nullptr) throw std::runtime_error("no room");
    KvFetch order;
    order.request = RequestId{1};
    order.source = source_;
    order.source.prefill = {kept.key, kept.generation};
    order.num_tokens = num_tokens;
    const std::uint64_t generation = kept.generation;
    kept_.keep(std::move(kept));
    const auto start = Clock::now();
    reader_->fetch(std::move(order));
    std::vector<KvFetched> fetched;
    std::unique_lock lock(mutex_);
    while ((fetched = reader_->take()).empty())
      eventually_.wait_for(lock, std::chrono::microseconds(200));
    const double seconds = seconds_since(start);
    if (fetched.front().loss) throw std::runtime_error(fetched.front().detail);
    kept_.release("key", generation);
    return seconds;
  }

 private:
  const std::unique_ptr<Device> device_ = make_cpu_device();
  SharedBuffer kept_memory_;
  KeptPrefills kept_;
  StagingBuffer arriving_;
  std::mutex mutex_;
  std::condition_variable eventually_;
  KvSource source_;
  std::unique_ptr<DataPlane> owner_, reader_;
};

void wait_for(int socket, short what) {
  pollfd waiting{socket, what, 0};
  ::poll(&waiting, 1, -1);
}

// Seconds until as many bytes have passed through a socket, in pieces of 1 MiB.
double plain_stream(const Host& host, const std::string& listen, std::vector<std::byte>& from,
                    std::vector<std::byte>& to) {
  SocketAddress address = *parse_socket_address(listen);
  const Descriptor listener = host.there([&] { return std::move(*listen_at(address)); });
  if (!address.is_unix()) address.port = port_of(listener);
  const Descriptor client = std::move(*begin_connect(address));
  wait_for(listener.get(), POLLIN);
  const Descriptor server = accept_from(listener);
  const auto start = Clock::now();
  std::thread sending([&] {
    for (std::size_t at = 0; at < from.size();) {
      const auto size = std::min<std::size_t>(from.size() - at, 1 << 20);
      const ssize_t sent = ::send(server.get(), from.data() + at, size, MSG_NOSIGNAL);
      if (sent > 0) at += static_cast<std::size_t>(sent);
      if (sent < 0) wait_for(server.get(), POLLOUT);
    }
  });
  for (std::size_t at = 0; at < to.size();) {
    const ssize_t got =
        ::recv(client.get(), to.data() + at, std::min<std::size_t>(to.size() - at, 1 << 20), 0);
    if (got > 0) at += static_cast<std::size_t>(got);
    if (got < 0) wait_for(client.get(), POLLIN);
  }
  const double seconds = seconds_since(start);
  sending.join();
  return seconds;
}

void print(const char* what, const Rates& rates) {
  fmt::print("{:<24} best {:6.2f}  median {:6.2f} GB/s\n", what, rates.best(), rates.median());
}

void measure(const Host& host, const std::string& listen, const char* kind, int num_tokens,
             int rounds, bool near = false) {
  const KvContent content = kv_content(geometry_of(), num_tokens);
  const auto gigabytes = static_cast<double>(content.bytes) * 1e-9;
  Pair pair(host, listen, content.bytes + (1 << 20), near);
  std::vector<std::byte> from(static_cast<std::size_t>(content.bytes)), to(from.size());
  const std::string other = listen.starts_with("unix:") ? listen + ".probe" : listen;
  Rates fetched, streamed, copied, summed;
  std::uint64_t sum = 0;
  for (int round = 0; round < rounds; ++round) {  // in turn, so that all see the same machine
    fetched.samples.push_back(gigabytes / pair.fetch(num_tokens));
    streamed.samples.push_back(gigabytes / plain_stream(host, other, from, to));
    auto start = Clock::now();
    std::memcpy(to.data(), from.data(), from.size());
    copied.samples.push_back(gigabytes / seconds_since(start));
    start = Clock::now();
    sum += kv_checksum(from);
    summed.samples.push_back(gigabytes / seconds_since(start));
  }
  fmt::print("{}: {} tokens, {:.1f} MB ({})\n", kind, num_tokens, gigabytes * 1e3, sum & 1);
  print("fetched and checked", fetched);
  print("plain stream", streamed);
  print("memcpy", copied);
  print("checksum alone", summed);
  fmt::print("of the stream {:.2f}, of memcpy {:.2f} (best by best)\n",
             fetched.best() / streamed.best(), fetched.best() / copied.best());
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  const int mebibytes = argc > 1 ? std::atoi(argv[1]) : 64;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 9;
  const int num_tokens = mebibytes * 8;  // of 128 KiB
  if (argc == 6 && std::string(argv[3]) == "--hosts") {
    const quire::Host owner(argv[4]);
    quire::measure(owner, argv[5] + std::string(":0"), "TCP between hosts", num_tokens, rounds);
    return 0;
  }
  const quire::Host here;
  quire::measure(here, "127.0.0.1:0", "TCP", num_tokens, rounds);
  const std::string path = fmt::format("unix:/tmp/quire-kv-perf-{}.sock", ::getpid());
  quire::measure(here, path, "Unix socket", num_tokens, rounds);
  quire::measure(here, path, "Shared memory", num_tokens, rounds, true);
  return 0;
}
