#pragma once
// A front end's end of the line to an engine process of its own: what the socket brings, and what
// the process's end means, which no socket tells.

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/wire/channel.h"

namespace quire {

// What is known of one engine's process. Any thread.
class ProcessNews {
 public:
  void on_events(std::function<void()> notify);
  // The process has ended; nothing of its next life comes before this.
  void ended(std::string how);
  void gone_for_good();
  // Its line was given up because it said nothing; told on to whoever can end the process.
  void fell_silent();
  void on_silence(std::function<void()> notify);
  bool take_silence();  // whether it has fallen silent since this was last asked
  void note_ready();
  bool was_ready() const;  // ever

  // False: gone for good.
  bool take(std::vector<EngineEvent>& events);

 private:
  void tell();

  mutable std::mutex mutex_;
  std::vector<EngineEvent> events_;
  std::function<void()> notify_;
  std::function<void()> notify_of_silence_;
  bool is_silent_ = false;
  bool was_ready_ = false;
  bool gone_ = false;
};

std::unique_ptr<ClientEnd> make_process_end(std::unique_ptr<ClientEnd> socket,
                                            std::shared_ptr<ProcessNews> news);

}  // namespace quire
