#pragma once
// Who is connected to a port: so many and no more. Where there are too many, one that does nothing
// makes place for another: those that never did anything first, then whoever did so longest ago.
// Belongs to the transfer's thread.

#include <cstddef>
#include <functional>
#include <list>

#include "base/async.h"

namespace quire {

class Visitors {
 public:
  explicit Visitors(std::size_t most) : most_(most) {}

  // Until another may come in.
  awaitable<void> make_place();

  class Visit {
   public:
    // Both are called as long as it is there. What waits for a line that is hung up ends soon.
    Visit(Visitors& visitors, std::function<void()> hang_up, std::function<bool()> is_idle);
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

    void was_of_use();  // it is kept longer than those that were not

   private:
    friend class Visitors;
    Visitors& visitors_;
    const std::function<void()> hang_up_;
    const std::function<bool()> is_idle_;
    bool was_of_use_ = false, is_leaving_ = false;
    std::list<Visit*>::iterator place_;
  };

 private:
  bool send_one_away();

  const std::size_t most_;
  std::list<Visit*> all_;  // whoever was of use latest, last
};

}  // namespace quire
