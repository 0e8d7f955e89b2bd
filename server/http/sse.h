#pragma once
// Server-sent events on one connection. Events gather in a buffer and leave together; whoever
// flushes waits until its own have left, so a slow reader holds back its stream and nothing else.
// One strand; several coroutines may write.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/async.h"

namespace quire {

class Connection;

class SseWriter {
 public:
  // The head goes out before the first event. before_end is called before the last one does.
  SseWriter(Connection& connection, std::string head, bool chunked,
            std::function<void()> before_end = {});
  SseWriter(SseWriter&&) noexcept;
  ~SseWriter();

  void event(std::string_view json);  // data: …
  // The same in parts, without a copy: append to the buffer between the two calls.
  std::string& begin_event();
  std::string& begin_event(std::string_view name);  // event: name, before the data
  void end_event();

  // False: the client is gone.
  awaitable<bool> flush();
  // data: [DONE], and the end of the body.
  awaitable<bool> done();
  awaitable<bool> end();  // of the body alone
  bool complete() const { return complete_; }  // all of it has been written

 private:
  struct Wakeup;

  awaitable<bool> write_gathered();
  awaitable<bool> flush_after_others(std::uint64_t mine);
  bool has_nothing() const;
  void open_chunk();
  void close_chunk(bool last);

  Connection& connection_;
  bool chunked_;
  std::function<void()> before_end_;
  std::string gathered_;  // an open chunk, after the head that has not been sent yet
  std::string sending_;
  std::size_t chunk_start_ = 0;                    // in gathered_
  std::uint64_t num_gathered_ = 0, num_sent_ = 0;  // flushes asked for and done
  bool writing_ = false, ended_ = false, complete_ = false, broken_ = false;
  std::unique_ptr<Wakeup> wakeup_;  // of those who wait for another's write
};

}  // namespace quire
