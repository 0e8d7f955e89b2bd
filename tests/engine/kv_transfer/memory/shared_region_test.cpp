// Prefills that are read in the memory of who keeps them: the right bytes or a loss, whatever the
// other end does with its memory.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>

#include "engine/kv_transfer/content/frames.h"
#include "engine/kv_transfer/memory/shared_region.h"
#include "tests/engine/kv_transfer/transfer_ends.h"

namespace quire::test {
namespace {

constexpr std::int64_t kBytes = 1 << 20;

Descriptor some_file(unsigned seals, std::int64_t bytes = kBytes) {
  Descriptor file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(file.get(), bytes) == 0);
  if (seals != 0) REQUIRE(::fcntl(file.get(), F_ADD_SEALS, seals) == 0);
  return file;
}

SocketAddress some_path() {
  SocketAddress address;
  address.path = (std::filesystem::temp_directory_path() /
                  ("quire-near-" + std::to_string(::getpid()) + ".sock"))
                     .string();
  return address;
}

// One who keeps in shared memory and one who fetches, over a Unix socket.
class NearEnds {
 public:
  NearEnds()
      : shared_(make_shared_buffer(kBytes, MemoryPurpose::kv_transfer, device_->ledger())),
        kept_(std::move(shared_.memory), 30s, std::move(shared_.descriptor)),
        arriving_(device_->allocate(kBytes)) {
    QuirePlaneOptions owner, reader;
    owner.listen = address_;
    owner.sender.engine = "owner";
    owner.sender.geometry = reader.receiver.geometry = some_geometry();
    reader.receiver.silence = 200ms;
    owner_ = make_quire_plane(std::move(owner), &kept_, nullptr, [] {});
    reader_ = make_quire_plane(std::move(reader), nullptr, &arriving_, [] {});
  }

  KvFetched fetch(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    KeptPrefill kept;
    kept.key = "key-" + std::to_string(seed);
    kept.generation = kept_.next_generation();
    kept.content = kv_content(some_geometry(), 100);
    kept.prompt_hash = seed;
    kept.range = kept_.make_room(kept.content.bytes);
    REQUIRE(kept.range != nullptr);
    for (std::byte& one : kept.range->bytes()) one = static_cast<std::byte>(random());
    expected.assign(kept.range->bytes().begin(), kept.range->bytes().end());
    KvFetch fetch;
    fetch.request = RequestId{seed};
    fetch.source.address = address_;
    fetch.source.engine = "owner";
    fetch.source.prefill = {kept.key, kept.generation};
    fetch.num_tokens = 100;
    fetch.prompt_hash = seed;
    reader_->watch(fetch.request, fetch.source);
    kept_.keep(std::move(kept));
    reader_->fetch(std::move(fetch));
    for (int i = 0; i < 5000; ++i) {
      auto fetched = reader_->take();
      if (!fetched.empty()) {
        reader_->release(RequestId{seed});
        return std::move(fetched.front());
      }
      std::this_thread::sleep_for(1ms);
    }
    FAIL("a fetch did not end");
    return {};
  }
  bool all_came_back() {
    for (int i = 0; i < 2000 && kept_.used_bytes() > 0; ++i) std::this_thread::sleep_for(1ms);
    return kept_.used_bytes() == 0 && arriving_.used() == 0;
  }

  std::vector<std::byte> expected;

 private:
  const SocketAddress address_ = some_path();
  const std::unique_ptr<Device> device_ = make_cpu_device();
  SharedBuffer shared_;
  KeptPrefills kept_;
  StagingBuffer arriving_;
  std::unique_ptr<DataPlane> owner_, reader_;
};

}  // namespace

TEST_CASE("prefills on one machine are read where they lie", "[kv_transfer]") {
  NearEnds ends;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const KvFetched fetched = ends.fetch(seed);
    INFO(fetched.detail);
    REQUIRE_FALSE(fetched.loss);
    const auto bytes = fetched.range->bytes();
    CHECK(std::equal(bytes.begin(), bytes.end(), ends.expected.begin(), ends.expected.end()));
  }
  CHECK(ends.all_came_back());
}

TEST_CASE("shared memory can neither shrink nor be written by others", "[kv_transfer]") {
  const std::unique_ptr<Device> device = make_cpu_device();
  const SharedBuffer shared =
      make_shared_buffer(kBytes, MemoryPurpose::kv_transfer, device->ledger());
  CHECK(device->ledger().uses()[MemoryPurpose::kv_transfer].device == std::size_t{kBytes});
  static_cast<std::byte*>(shared.memory.data())[5] = std::byte{7};
  CHECK(::ftruncate(shared.descriptor.get(), 10) != 0);
  CHECK(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared.descriptor.get(), 0) ==
        MAP_FAILED);
  const auto mapped = MappedRegion::map(Descriptor(::dup(shared.descriptor.get())), kBytes);
  REQUIRE(mapped != nullptr);
  CHECK(mapped->bytes()[5] == std::byte{7});
}

TEST_CASE("memory that a peer could take away is not read", "[kv_transfer]") {
  CHECK(MappedRegion::map(some_file(0), kBytes) == nullptr);
  CHECK(MappedRegion::map(some_file(F_SEAL_GROW), kBytes) == nullptr);
  CHECK(MappedRegion::map(some_file(F_SEAL_SHRINK, kBytes - 1), kBytes) == nullptr);
  CHECK(MappedRegion::map(some_file(F_SEAL_SHRINK), 0) == nullptr);
  CHECK(MappedRegion::map(some_file(F_SEAL_SHRINK), -1) == nullptr);
  CHECK(MappedRegion::map(Descriptor(::open("/dev/zero", O_RDONLY)), kBytes) == nullptr);
  CHECK(MappedRegion::map(Descriptor(), kBytes) == nullptr);
  CHECK(MappedRegion::map(some_file(F_SEAL_SHRINK), kBytes) != nullptr);
}

namespace {

// Says what it likes of memory that it likes.
class FalsePeer {
 public:
  explicit FalsePeer(KvPlaced placed) : listener_(std::move(*listen_at(address))), placed_(placed) {
    thread_ = std::thread([this] { serve(); });
  }
  ~FalsePeer() { thread_.join(); }

  const SocketAddress address = some_path();

 private:
  template <class Message>
  void send(KvFrameType type, const Message& message, std::uint64_t stream = 0, int fd = -1) {
    const std::string body = encode_kv(message);
    KvFrameHeader header;
    header.type = type;
    header.stream = stream;
    const auto head = encode(sealed(header, std::as_bytes(std::span(body))));
    iovec part{const_cast<std::byte*>(head.data()), head.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
    msghdr first{};
    first.msg_iov = &part;
    first.msg_iovlen = 1;
    if (fd >= 0) {
      first.msg_control = control;
      first.msg_controllen = sizeof control;
      cmsghdr* const with = CMSG_FIRSTHDR(&first);
      with->cmsg_level = SOL_SOCKET;
      with->cmsg_type = SCM_RIGHTS;
      with->cmsg_len = CMSG_LEN(sizeof fd);
      std::memcpy(CMSG_DATA(with), &fd, sizeof fd);
    }
    ::sendmsg(line_.get(), &first, MSG_NOSIGNAL);
    ::send(line_.get(), body.data(), body.size(), MSG_NOSIGNAL);
  }
  std::uint64_t read_frame() {
    std::array<std::byte, kKvHeaderBytes> head{};
    if (::recv(line_.get(), head.data(), head.size(), MSG_WAITALL) <= 0) return 0;
    const auto header = parse_kv_header(head);
    std::string body(header->size, '\0');
    if (!body.empty() && ::recv(line_.get(), body.data(), body.size(), MSG_WAITALL) <= 0) return 0;
    return header->stream;
  }
  void serve() {
    while (!line_) {
      line_ = accept_from(listener_);
      std::this_thread::sleep_for(1ms);
    }
    ::fcntl(line_.get(), F_SETFL, 0);
    read_frame();
    const Descriptor memory = some_file(F_SEAL_SHRINK);
    KvWelcome welcome;
    welcome.protocol = kKvProtocol;
    welcome.engine = "false";
    welcome.geometry = some_geometry();
    welcome.shared_bytes = kBytes;
    send(KvFrameType::welcome, welcome, 0, memory.get());
    const std::uint64_t stream = read_frame();
    KvBegin begin;
    begin.bytes = kv_content(some_geometry(), 100).bytes;
    begin.pieces = 4;
    send(KvFrameType::begin, begin, stream);
    send(KvFrameType::placed, placed_, stream);
    read_frame();
  }

  const Descriptor listener_;
  const KvPlaced placed_;
  Descriptor line_;
  std::thread thread_;
};

std::string loss_of(const KvPlaced& placed) {
  FalsePeer peer(placed);
  const std::unique_ptr<Device> device = make_cpu_device();
  StagingBuffer arriving(device->allocate(kBytes));
  QuirePlaneOptions options;
  options.receiver.geometry = some_geometry();
  options.receiver.silence = 500ms;
  const auto reader = make_quire_plane(std::move(options), nullptr, &arriving, [] {});
  KvFetch fetch;
  fetch.request = RequestId{1};
  fetch.source.address = peer.address;
  fetch.source.engine = "false";
  fetch.source.prefill = {"key", 1};
  fetch.num_tokens = 100;
  reader->fetch(std::move(fetch));
  std::vector<KvFetched> fetched;
  while ((fetched = reader->take()).empty()) std::this_thread::sleep_for(1ms);
  CHECK(fetched.front().loss == KvLossReason::corrupt);
  CHECK(fetched.front().range == nullptr);
  return fetched.front().detail;
}

}  // namespace

TEST_CASE("places outside of shared memory, and other bytes than said, are refused",
          "[kv_transfer][faults]") {
  const KvContent content = kv_content(some_geometry(), 100);
  const std::int64_t piece = kv_pieces(content, content, piece_bytes(true)).front().bytes;
  const std::string outside = "a piece lies outside of what is shared";
  CHECK(loss_of({.offset = kBytes - piece + 1, .bytes = piece}) == outside);
  CHECK(loss_of({.offset = -1, .bytes = piece}) == outside);
  CHECK(loss_of({.offset = std::numeric_limits<std::int64_t>::max(), .bytes = piece}) == outside);
  CHECK(loss_of({.offset = 0, .bytes = piece + 1}) == outside);
  CHECK(loss_of({.offset = 0, .bytes = -piece}) == outside);
  CHECK(loss_of({.offset = 0, .bytes = piece, .checksum = 1}) == "a piece's checksum is wrong");
}

}  // namespace quire::test
