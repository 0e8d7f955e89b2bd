// A peer that is killed at any moment: the other one has the right bytes or a loss with a reason,
// and all memory and connections back.

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <functional>

#include "tests/engine/kv_transfer/mooncake/ends.h"

namespace quire::test {
namespace {

constexpr int kNumTokens = 6000;  // some milliseconds
constexpr std::uint64_t kKills = 30;

// A process of its own, made while this one has a single thread. What it is told and says are
// ports.
class Child {
 public:
  using Say = std::function<void(std::uint16_t)>;
  using Hear = std::function<std::uint16_t()>;

  explicit Child(const std::function<void(const Say&, const Hear&)>& work) {
    std::array<int, 2> there{}, back{};
    REQUIRE(::pipe(there.data()) == 0);
    REQUIRE(::pipe(back.data()) == 0);
    process_ = ::fork();
    REQUIRE(process_ >= 0);
    to_.reset(there[1]);
    from_.reset(back[0]);
    const Descriptor in(there[0]), out(back[1]);
    if (process_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    work([&](std::uint16_t port) { send(out, port); }, [&] { return receive(in); });
    while (true) ::pause();
  }
  ~Child() { kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void say(std::uint16_t port) const { send(to_, port); }
  std::uint16_t hear() const { return receive(from_); }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  static void send(const Descriptor& pipe, std::uint16_t port) {
    if (::write(pipe.get(), &port, sizeof port) != sizeof port) ::_exit(1);
  }
  static std::uint16_t receive(const Descriptor& pipe) {
    std::uint16_t port = 0;
    if (::read(pipe.get(), &port, sizeof port) != sizeof port) port = 0;
    return port;
  }

  pid_t process_ = 0;
  Descriptor to_, from_;
};

MooncakeEnds::Options half(bool is_owner) {
  MooncakeEnds::Options options;
  options.silence = 10s;  // it is not by silence that a process which has ended is noticed
  options.patience = 20s;
  options.bytes = 16 << 20;
  options.has_owner = is_owner;
  options.has_reader = !is_owner;
  return options;
}

}  // namespace

TEST_CASE("whoever prefills may be killed at any moment", "[mooncake][faults]") {
  int whole = 0, lost = 0;
  for (std::uint64_t seed = 1; seed <= kKills; ++seed) {
    INFO("seed " << seed);
    Child child([seed](const Child::Say& say, const Child::Hear&) {
      static MooncakeEnds owner(half(true));
      owner.keep(seed, owner.made(seed, kNumTokens));
      say(owner.owner_port());
    });
    const std::uint16_t port = child.hear();
    REQUIRE(port != 0);
    MooncakeEnds ends(half(false));
    const std::size_t descriptors = num_descriptors();
    MooncakeEnds::Prefill prefill = ends.made(seed, kNumTokens);
    prefill.source.address = here(port);
    ends.reader().watch(RequestId{seed}, prefill.source);
    ends.reader().fetch(MooncakeEnds::fetch_of(seed, prefill));
    std::this_thread::sleep_for(std::chrono::microseconds(200 * seed));
    child.kill();
    {
      const KvFetched fetched = ends.await();
      fetched.loss ? ++lost : ++whole;
      if (fetched.loss) {
        INFO(fetched.detail);
        CHECK(fetched.loss == KvLossReason::peer_lost);
      } else {
        CHECK(MooncakeEnds::is_right(fetched, prefill, 0));
      }
    }
    ends.reader().release(RequestId{seed});
    CHECK(comes_true([&] { return ends.arriving().used() == 0; }));
    CHECK(comes_true([&] { return num_descriptors() <= descriptors; }));
  }
  INFO(whole << " whole, " << lost << " lost");
  CHECK(lost > 0);
}

TEST_CASE("whoever decodes may be killed at any moment", "[mooncake][faults]") {
  int still_there = 0;
  for (std::uint64_t seed = 1; seed <= kKills; ++seed) {
    INFO("seed " << seed);
    Child child([seed](const Child::Say& say, const Child::Hear& hear) {
      static MooncakeEnds reader(half(false));
      say(reader.reader_port());
      auto prefill = reader.made(seed, kNumTokens);
      prefill.source.address = here(hear());
      reader.reader().watch(RequestId{seed}, prefill.source);
      reader.reader().fetch(MooncakeEnds::fetch_of(seed, prefill));
    });
    REQUIRE(child.hear() != 0);
    MooncakeEnds ends([] {
      MooncakeEnds::Options options = half(true);
      options.has_reader = true;
      return options;
    }());
    const std::size_t descriptors = num_descriptors();
    const MooncakeEnds::Prefill prefill = ends.made(seed, kNumTokens);
    ends.keep(seed, prefill);
    child.say(ends.owner_port());
    std::this_thread::sleep_for(std::chrono::microseconds(500 * seed));
    child.kill();
    CHECK(comes_true([&] { return num_descriptors() <= descriptors; }));
    if (ends.kept().used_bytes() == 0) continue;  // it had all of it
    ++still_there;
    {
      const KvFetched fetched = ends.fetched(seed, prefill);  // another may still have it
      INFO(fetched.detail);
      REQUIRE_FALSE(fetched.loss);
      CHECK(MooncakeEnds::is_right(fetched, prefill, 0));
    }
    CHECK(comes_true([&] { return ends.kept().used_bytes() == 0; }));
  }
  CHECK(still_there > 0);
}

}  // namespace quire::test
