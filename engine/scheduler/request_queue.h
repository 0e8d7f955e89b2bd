#pragma once
// Waiting requests. First come first served, where clients take turns: each has one request in a
// round, so that who sent a thousand does not hold up who sent one. Or by priority (then arrival,
// then id). Doubly linked lists through the requests themselves; joining and leaving take the
// logarithm of how many rounds wait.

#include <cstdint>
#include <map>
#include <unordered_map>

#include "engine/config.h"
#include "engine/request/request.h"

namespace quire {

class RequestQueue {
 public:
  explicit RequestQueue(SchedulingPolicy policy) : policy_(policy) {}
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  bool empty() const { return size_ == 0; }
  int size() const { return size_; }
  std::int64_t num_tokens() const { return num_tokens_; }  // of those who wait, as they joined

  Request* front() const;
  bool holds(const Request& request) const { return request.queue.owner == this; }

  void push_back(Request& request);
  // Before all others under FCFS; by priority, where it belongs.
  void push_front(Request& request);
  void remove(Request& request);

  // In queue order.
  template <class F>
  void for_each(F&& visit) const {
    for (const auto& [place, list] : lists_) {
      for (Request* request = list.head; request != nullptr;) {
        Request* next = request->queue.next;
        visit(*request);
        request = next;
      }
    }
  }

  // The one that is served first comes first.
  static bool before(const Request& a, const Request& b);

 private:
  struct List {
    Request* head = nullptr;
    Request* tail = nullptr;
  };
  // Of a client that waits.
  struct Turns {
    std::int64_t last = 0;  // the round of its latest request
    int waiting = 0;
  };

  std::int64_t next_round(std::uint64_t client);
  void link(Request& request, std::int64_t place, Request* next);

  SchedulingPolicy policy_;
  std::map<std::int64_t, List> lists_;  // by round, or by priority
  std::unordered_map<std::uint64_t, Turns> turns_;  // under FCFS
  int size_ = 0;
  std::int64_t num_tokens_ = 0;
};

}  // namespace quire
