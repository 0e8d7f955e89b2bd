#pragma once
// Addresses of hosts that are given by name. The system's look-up, getaddrinfo(), may take minutes
// where a name server is silent and cannot be cut short. So it runs on a thread of its own, for
// which nobody waits longer than it says, nor does the end of the program.

#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"

namespace quire {

struct HostAddress {
  sockaddr_storage name{};  // with the port
  socklen_t size = 0;       // bytes

  int family() const { return name.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};
using HostAddresses = Result<std::vector<HostAddress>>;  // never empty; error: unavailable

// Waits for the name server. The flags are getaddrinfo()'s: AI_NUMERICHOST, AI_PASSIVE, …
HostAddresses look_up_now(const std::string& host, const std::string& port, int flags);

// One look-up. It may be dropped at any time: its thread ends by itself then.
class HostLookup {
 public:
  using Function = std::function<HostAddresses()>;

  HostLookup(const std::string& host, const std::string& port, int flags);
  explicit HostLookup(Function look_up);

  bool wait_for(std::chrono::milliseconds time) const;  // false: there is no answer yet
  const HostAddresses& answer() const;                  // once there is one

 private:
  struct State;
  std::shared_ptr<State> state_;  // the thread's too
};

// For those who connect to the same hosts again and again: each attempt takes the next address of
// its host's answer, and behind the last one the name is looked up again, so that what changes is
// followed. Any thread.
class HostNames {
 public:
  using Function = std::function<HostAddresses(const std::string& host, const std::string& port)>;
  struct Next {
    HostAddress address;
    bool is_last = true;  // the next one is another answer's
  };

  explicit HostNames(Function look_up);

  // What is written as a number comes at once. Errors: overloaded, the name is still being looked
  // up after so long: ask again; unavailable, it has no address.
  Result<Next> next(const std::string& host, const std::string& port,
                    std::chrono::milliseconds patience);

 private:
  using Clock = std::chrono::steady_clock;
  struct Name {
    HostLookup lookup;
    std::size_t num_taken = 0;
    Clock::time_point used = Clock::now();
  };
  std::shared_ptr<Name> find(const std::string& key, const std::string& host,
                             const std::string& port);  // with the lock, as what follows
  void forget_old();

  const Function look_up_;
  std::mutex mutex_;
  // Shared with those who wait for the answer, who may take of it after it has gone from here.
  std::map<std::string, std::shared_ptr<Name>> names_;
};

}  // namespace quire
