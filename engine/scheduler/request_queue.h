#pragma once
// Waiting requests, first come first served or by priority (then arrival, then id). A doubly linked
// list through the requests themselves: joining and leaving take the same time however long it is.

#include <cstdint>
#include <map>

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
    for (const auto& [priority, list] : lists_) {
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

  void link(Request& request, List& list, Request* next);

  SchedulingPolicy policy_;
  std::map<int, List> lists_;  // by priority; FCFS has one
  int size_ = 0;
  std::int64_t num_tokens_ = 0;
};

}  // namespace quire
