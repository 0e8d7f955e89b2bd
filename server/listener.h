#pragma once
// The listening socket and the sessions behind it.

#include <boost/asio/any_io_executor.hpp>
#include <memory>
#include <string>

#include "base/async.h"
#include "base/result.h"
#include "server/app_state.h"

namespace quire {

class Listener {
 public:
  // Binds at once; throws Failure naming the address. A session's strand is made on `pool`.
  Listener(asio::any_io_executor pool, asio::any_io_executor strand, const ServerConfig& config);
  ~Listener();

  std::string address() const;  // http://127.0.0.1:8000, unix:/run/quire.sock
  int port() const;             // 0: a Unix socket

  // Accepts until cancelled or stopped.
  awaitable<void> accept(AppState& app);
  // Reads certificate and key again, for connections from now on. The error leaves what there is.
  Result<void> reload_tls();
  bool has_tls() const;
  // Stops accepting; sessions end after the request they are in, or at once if they are in none.
  void stop(AppState& app);
  // Waits until the last session has ended.
  awaitable<void> wait();
  // Ends what still runs; waits for it.
  awaitable<void> close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
