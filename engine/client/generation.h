#pragma once
// A running request as its reader sees it.

#include <memory>
#include <optional>
#include <vector>

#include "base/async.h"
#include "engine/wire/messages.h"

namespace quire {

class EngineClient;
class GenerationBuffer;

// Move-only handle. Used by one coroutine at a time, on any strand; the engine never waits for it:
// outputs gather in a buffer that holds at most max_tokens tokens. Must not outlive its
// EngineClient.
class Generation {
 public:
  Generation(EngineClient& client, std::shared_ptr<GenerationBuffer> buffer);
  Generation(Generation&&) noexcept;
  Generation& operator=(Generation&&) noexcept;
  // Aborts in the engine when not finished; its blocks are free one step later.
  ~Generation();

  RequestId id() const;
  EngineId engine() const;

  // Everything that arrived since the last call, merged; waits when there is nothing yet. The last
  // output has a finish_reason, after it comes nullopt. A dead engine ends it with
  // FinishReason::error. Throws operation_aborted when the waiting coroutine is cancelled.
  awaitable<std::optional<RequestOutput>> next();

  // An output that has been read: the next one may use its memory.
  void reuse(RequestOutput output);

  // When the steps ended that made the tokens of the latest output, one for each, on the engine's
  // clock.
  const std::vector<Clock::time_point>& token_times() const;

  // For a reader that shows nothing before the end: where the engine is lost, the answer may begin
  // anew on another one, or when it is back.
  void let_start_over();
  // The latest output does so: what came before it counts no more.
  bool starts_over() const;

  // Ends it now, as the destructor would; next() gives nullopt from here on.
  void cancel();

 private:
  EngineClient* client_ = nullptr;
  std::shared_ptr<GenerationBuffer> buffer_;  // shared with the client, which fills it
};

}  // namespace quire
