#include "engine/wire/event_mailbox.h"

#include <catch2/catch.hpp>

namespace quire::test {
namespace {

StepOutput step(TokenId token) {
  StepOutput output;
  output.tokens = {{RequestId{1}, token}};
  return output;
}

struct Told {
  explicit Told(EventMailbox& mailbox) {
    mailbox.on_events([this] { ++count; });
  }
  void call(const EventMailbox::Notify& notify) {
    if (notify) notify();
  }
  int count = 0;
};

}  // namespace

TEST_CASE("a mailbox tells of what comes where nothing waited, and of its end once",
          "[engine][wire]") {
  EventMailbox mailbox(8);
  Told told(mailbox);
  told.call(mailbox.put(Hello{}));
  told.call(mailbox.put(step(1)));
  CHECK(told.count == 1);
  std::vector<EngineEvent> events;
  CHECK(mailbox.take(events));
  CHECK(events.size() == 2);
  told.call(mailbox.put(step(2)));
  CHECK(told.count == 2);
  told.call(mailbox.end());
  told.call(mailbox.end());
  CHECK(told.count == 3);
  CHECK_FALSE(mailbox.is_open());
  CHECK_FALSE(mailbox.take(events));  // with what came before the end
  CHECK(events.size() == 3);
}

TEST_CASE("a full mailbox merges steps into the last one, without loss", "[engine][wire]") {
  EventMailbox mailbox(2);
  for (int i = 0; i < 5; ++i) (void)mailbox.put(step(i));
  std::vector<EngineEvent> events;
  CHECK(mailbox.take(events));
  REQUIRE(events.size() == 2);
  CHECK(std::get<StepOutput>(events[0]).tokens.size() == 1);
  const auto& merged = std::get<StepOutput>(events[1]).requests;
  REQUIRE(merged.size() == 1);
  CHECK(merged[0].token_ids == std::vector<TokenId>{1, 2, 3, 4});
}

TEST_CASE("a mailbox that the client closed tells nobody and keeps nothing", "[engine][wire]") {
  EventMailbox mailbox(8);
  Told told(mailbox);
  mailbox.close();
  told.call(mailbox.put(Hello{}));
  told.call(mailbox.end());
  CHECK(told.count == 0);
  CHECK_FALSE(mailbox.is_open());
  std::vector<EngineEvent> events;
  CHECK_FALSE(mailbox.take(events));
  CHECK(events.empty());
}

}  // namespace quire::test
