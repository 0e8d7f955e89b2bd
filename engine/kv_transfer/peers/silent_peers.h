#pragma once
// Peers that were waited for in vain: they are left alone for a while, longer each time, so that
// requests which name them are not all kept waiting. Pure; belongs to whoever asks them.

#include <chrono>
#include <string>
#include <unordered_map>

namespace quire {

class SilentPeers {
 public:
  using Clock = std::chrono::steady_clock;

  // False: it is to be left alone. After its rest one may try, and others wait for how that goes.
  bool may_ask(const std::string& peer, Clock::time_point now);
  // What was asked at `asked` got no answer.
  void was_silent(const std::string& peer, Clock::time_point asked, Clock::time_point now);
  void answered(const std::string& peer) { peers_.erase(peer); }

 private:
  struct Rest {
    Clock::duration length{};
    Clock::time_point begin{}, end{};
  };
  std::unordered_map<std::string, Rest> peers_;
};

}  // namespace quire
