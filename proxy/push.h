#pragma once
// Prefills that are sent to the server that decodes while they are computed: both are asked at once,
// under a name that the proxy makes up. One such prefill; where servers that prefill can be reached
// for that.

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "net/http_client.h"
#include "proxy/bodies.h"
#include "proxy/connection.h"

namespace quire::proxy {

// Learned from answers. Any thread.
class KvPlaces {
 public:
  std::optional<KvPlace> find(const net::Url& server) const;
  // What a prefill's answer says of where it is kept.
  void learn(const net::Url& server, const net::Response& answer);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, KvPlace> places_;  // by server
};

std::string new_push_name();  // that nobody guesses

// One prefill under way, on a thread of its own.
class PushedPrefill {
 public:
  enum class State : std::uint8_t {
    running,
    ended,        // or broken off, from here or by the client
    busy,         // 503
    unreachable,  // or answered 502 or 504
    refused       // with any other error, which is the client's answer
  };

  // All outlive it.
  PushedPrefill(const Connection& client, const net::Url& server, net::Request request,
                KvPlaces& places);
  ~PushedPrefill();
  PushedPrefill(const PushedPrefill&) = delete;
  PushedPrefill& operator=(const PushedPrefill&) = delete;

  bool has_failed() const { return state_ >= State::busy; }
  // Breaks off what still runs; where it was refused, `answer` says how.
  State end();
  const net::Response& answer() const { return answer_; }  // after end()

 private:
  void run();

  const Connection& client_;
  const net::Url& server_;
  const net::Request request_;
  KvPlaces& places_;
  net::Response answer_;
  std::atomic<State> state_ = State::running;
  std::atomic<bool> stopped_ = false;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace quire::proxy
