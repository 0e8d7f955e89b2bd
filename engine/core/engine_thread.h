#pragma once
// The thread of one engine: handshake, then inbox → step → outbox until the front end closes the
// line. Asleep while there is nothing to do,
// or everyone waits for something outside of the step. An exception ends the engine: the front end
// is told why, and the line closes.

#include <memory>
#include <thread>

#include "engine/core/engine_backend.h"
#include "engine/wire/channel.h"

namespace quire {

class EngineCore;

class EngineThread {
 public:
  EngineThread(EngineId id, std::unique_ptr<EngineEnd> end, BackendFactory backend);
  // Closes the line and waits for the step that runs.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

 private:
  void run();
  void serve();
  std::unique_ptr<EngineCore> start_up();
  void loop(EngineCore& core);

  const EngineId id_;
  const std::unique_ptr<EngineEnd> end_;
  const BackendFactory backend_;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace quire
