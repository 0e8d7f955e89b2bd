#pragma once
// Where engines ask each other for their metadata: ZeroMQ over TCP, a ROUTER that answers and a REQ
// that asks, as vLLM's connector has them. Nothing here blocks. For one thread; wait() sleeps until
// there is something to do.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/wire/socket_address.h"

namespace quire {

class SideChannel {
 public:
  SideChannel();
  ~SideChannel();
  SideChannel(const SideChannel&) = delete;
  SideChannel& operator=(const SideChannel&) = delete;

  // Port 0: any. Returns the port. Throws Failure where it cannot listen.
  std::uint16_t listen(const SocketAddress& address);

  // A question that was sent; ends with the object.
  class Question;
  std::unique_ptr<Question> ask(const SocketAddress& address, std::string_view message);

  // Until something came, wake() was called, or the time is over.
  void wait(std::chrono::steady_clock::time_point until);
  void wake();  // any thread

  // Answers what was asked meanwhile, so much of it that others have their turn: wait() returns at
  // once where something is left. The frames that it returns are sent, none: no answer.
  static constexpr int kMostAtOnce = 16;
  using Answer = std::function<std::vector<std::string>(std::string_view question)>;
  void answer_all(const Answer& answer);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class SideChannel::Question {
 public:
  ~Question();
  // The frames of the answer; empty: not yet. Frames beyond the limit end it with none of them.
  std::optional<std::vector<std::string>> take();

 private:
  friend class SideChannel;
  struct Impl;
  explicit Question(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
