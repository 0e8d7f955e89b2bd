#pragma once
// Makes the masks of constrained outputs beside the engine's steps. After each token that a request
// takes, what may come next is worked out for it: most is found by the engine's thread in a short
// while, the rest by threads of the queue. A request whose masks are not there sits the step out,
// and nobody waits for it. Engine thread only, but for the queue's own threads.
//
// A mask that takes long is put aside for others, again and again with more time: one request's
// grammar does not keep those of other requests waiting either. A request that has no mask after
// kPatience, since the machine is too busy, ends with ErrorCode::overloaded.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "engine/structured/token_constraint.h"

namespace quire {

// What may follow an output, and then each of its drafts.
struct NextMasks {
  std::vector<TokenId> drafts;
  int count = 0;                          // masks: 1 + drafts, less those behind a refused draft
  std::vector<std::uint32_t> words;       // [count, width]
  std::vector<std::uint8_t> is_complete;  // [count]: nothing but the end may come

  std::span<const std::uint32_t> mask(int index, std::size_t width) const {
    return std::span(words).subspan(static_cast<std::size_t>(index) * width, width);
  }
};

struct MaskJob;
class MaskQueue;

// One request's constraint, with its masks once they are made. Goes before its queue does.
class ConstraintMasks {
 public:
  ConstraintMasks(MaskQueue& queue, std::shared_ptr<MaskJob> job);
  ~ConstraintMasks();
  ConstraintMasks(const ConstraintMasks&) = delete;
  ConstraintMasks& operator=(const ConstraintMasks&) = delete;

  bool is_ready() const;
  // While it is ready, until the next advance().
  const NextMasks& next() const;

  // The request has taken these tokens; it may be given drafts to verify behind them. Where the
  // constraint itself knows how the output goes on, that takes the drafts' place.
  void advance(std::span<const TokenId> taken, std::span<const TokenId> drafts, int most_drafts);

 private:
  MaskQueue& queue_;
  const std::shared_ptr<MaskJob> job_;
};

class MaskQueue {
 public:
  static constexpr std::chrono::milliseconds kPatience = std::chrono::seconds(60);

  // width: of a mask, in words. wake is called on a thread of the queue when take() has something.
  // num_threads: at least 2.
  MaskQueue(std::size_t width, std::function<void()> wake, int num_threads = 2,
            std::chrono::milliseconds patience = kPatience);
  ~MaskQueue();
  std::size_t width() const { return width_; }

  // The first masks are asked for at once.
  std::unique_ptr<ConstraintMasks> add(RequestId request,
                                       std::unique_ptr<TokenConstraint> constraint);

  // Makes masks on this thread until none are left that it can make, or the time is over.
  void work(std::chrono::nanoseconds budget);

  struct Done {
    RequestId request;
    Error error;              // where it failed, and the request must end
    bool has_failed = false;  // else its masks are ready from now on
  };
  // Since the last call.
  std::vector<Done> take();
  // Requests whose masks are being made.
  std::size_t num_open() const { return num_open_; }

 private:
  friend class ConstraintMasks;
  using JobPtr = std::shared_ptr<MaskJob>;

  void submit(const JobPtr& job);
  void drop(const JobPtr& job);
  void help(const std::stop_token& stop, bool is_patient);
  JobPtr next_job(bool is_patient);
  bool has_job(bool is_patient) const;
  Slice::Clock::time_point next_deadline() const;
  bool end_overdue();
  void make(std::unique_lock<std::mutex>& lock, const JobPtr& job, Slice slice);

  const std::size_t width_;
  const std::function<void()> wake_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable_any arrived_;
  std::deque<JobPtr> fresh_;  // nobody has looked at them
  std::deque<JobPtr> tried_;  // too long for the engine's thread
  std::deque<JobPtr> slow_;   // too long for the thread that is there for short ones
  std::vector<JobPtr> dead_;  // to be freed by a thread that has the time
  std::vector<JobPtr> done_;
  std::size_t num_open_ = 0;           // of the engine's thread
  std::vector<std::jthread> threads_;  // last: they use what is above
};

}  // namespace quire
