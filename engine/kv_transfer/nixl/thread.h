#pragma once
// The thread of a plane over NIXL, whichever side moves the bytes: the library's agent, the side
// channel, other servers, and the side that fetches or keeps. Asleep while nothing travels, but for
// looks at the library's notices, which nothing announces: often while one is awaited, seldom else.
// What fails of one transfer, peer or message ends that one and nobody else's.

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/kv_transfer/nixl/remotes.h"
#include "engine/kv_transfer/plane/forwarding_plane.h"

namespace quire {

struct NixlThreadOptions {
  const NixlLibrary* library = nullptr;  // outlives the plane
  NixlSelf self;
  std::string engine;                   // what this start of the engine is called
  std::string attention_backend;        // as vLLM servers are told
  std::optional<SocketAddress> listen;  // whoever is asked for its metadata
  std::chrono::nanoseconds silence = std::chrono::seconds(2);  // until an answer
};

// What works on the thread.
class NixlSide {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~NixlSide() = default;
  virtual KvFetcher* fetcher() = 0;                 // null: it fetches nothing
  virtual const KvTrafficCounts& sent() const = 0;  // any thread
  // To be registered with the library.
  virtual std::vector<std::span<std::byte>> memory() const = 0;
  // What others are told of it: regions, blocks, sums.
  virtual void describe(NixlMetadata& metadata) const = 0;
  // Another Quire server asks. Empty: it is no such question.
  virtual std::string answer(std::string_view) { return {}; }
  // `agent` says so. False: of nothing that is known here.
  virtual bool take_notice(const std::string& agent, const std::string& notice) = 0;
  virtual bool awaits_notices() const = 0;
  // Does what can be done now. When it wants to be called again; max: when something comes.
  virtual Clock::time_point step() = 0;
};

class NixlThread final : public ForwardingPlane {
 public:
  struct Parts {
    NixlRemotes& remotes;
    std::uint16_t port;           // 0: it does not listen
    std::function<void()> knock;  // any thread: there is something to do
    std::function<void()> wake;   // take() has something, or counts are others
  };
  using Make = std::function<std::unique_ptr<NixlSide>(const NixlSelf& self, Parts parts)>;

  // wake is called on any thread. Throws Failure where the library does not work or nobody can
  // listen, and what `make` throws.
  NixlThread(NixlThreadOptions options, std::function<void()> wake, const Make& make);
  ~NixlThread() override;
  NixlThread(const NixlThread&) = delete;
  NixlThread& operator=(const NixlThread&) = delete;

  std::uint16_t port() const override;
  const KvTrafficCounts& sent() const override;

 private:
  struct State;
  void post(std::function<void(KvFetcher&)> call) override;
  KvFetcher* fetcher() const override;

  const std::unique_ptr<State> state_;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace quire
