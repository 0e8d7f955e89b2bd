// Whose turn it is.

#include "engine/scheduler/request_queue.h"

#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>

using namespace quire;

namespace {

struct Waiting {
  RequestQueue queue{SchedulingPolicy::fcfs};
  std::deque<std::unique_ptr<Request>> made;

  Request& push(std::uint64_t client, bool front = false) {
    RequestInit init;
    init.id = RequestId{made.size() + 1};
    init.prompt = {1};
    init.client = client;
    Request& request = *made.emplace_back(std::make_unique<Request>(std::move(init)));
    front ? queue.push_front(request) : queue.push_back(request);
    return request;
  }
  std::uint64_t serve() {
    Request* const request = queue.front();
    queue.remove(*request);
    return request->client();
  }
  std::string serve_all() {
    std::string order;
    while (!queue.empty()) order += static_cast<char>('a' + serve());
    return order;
  }
};

}  // namespace

TEST_CASE("One client's requests are served as they came", "[scheduler][queue]") {
  Waiting waiting;
  for (int i = 0; i < 5; ++i) waiting.push(7);
  for (int i = 0; i < 5; ++i) {
    CHECK(waiting.queue.front() == waiting.made[static_cast<std::size_t>(i)].get());
    waiting.serve();
  }
}

TEST_CASE("Who sent a thousand does not hold up who sent one", "[scheduler][queue]") {
  Waiting waiting;
  for (int i = 0; i < 1000; ++i) waiting.push(0);
  waiting.push(1);
  waiting.serve();
  CHECK(waiting.serve() == 1);
  for (int i = 0; i < 3; ++i) waiting.push(2);
  CHECK(waiting.serve_all().substr(0, 7) == "acacaca");
}

TEST_CASE("Clients take turns, whatever each of them sends", "[scheduler][queue]") {
  Waiting waiting;
  for (const char c : std::string("aaaabbc")) waiting.push(static_cast<std::uint64_t>(c - 'a'));
  CHECK(waiting.serve_all() == "abcabaa");
  waiting.push(0);
  waiting.push(1);
  waiting.push(0, true);  // was preempted
  CHECK(waiting.serve_all() == "aab");
}

TEST_CASE("Under any traffic nobody is passed by twice, and nothing is lost", "[scheduler][queue]") {
  std::mt19937 random(3);
  Waiting waiting;
  std::map<std::uint64_t, int> count, passed;
  for (int i = 0; i < 20'000; ++i) {
    if (waiting.queue.empty() || random() % 100 < 51) {
      const std::uint64_t client = random() % 3 == 0 ? random() % 20 : 0;
      waiting.push(client);
      ++count[client];
    } else if (random() % 10 == 0) {  // leaves without having been served
      Request* leaving = nullptr;
      auto skip = random() % static_cast<unsigned>(waiting.queue.size());
      waiting.queue.for_each([&](Request& r) { if (skip-- == 0) leaving = &r; });
      --count[leaving->client()];
      passed[leaving->client()] = -1'000'000;  // its later requests keep their rounds
      waiting.queue.remove(*leaving);
    } else {
      const std::uint64_t served = waiting.serve();
      --count[served];
      for (const auto& [client, waits] : count) {
        if (client == served || waits == 0) passed[client] = 0;
        else ++passed[client];
        CHECK(passed[client] <= 40);  // of the twenty others each has at most two turns in between
      }
    }
    int sum = 0;
    for (const auto& [client, waits] : count) sum += waits;
    REQUIRE(sum == waiting.queue.size());
  }
}
