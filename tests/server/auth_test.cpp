#include "server/http/auth.h"

#include <catch2/catch.hpp>

using namespace quire;

namespace {

// printf %s alpha | sha256sum
constexpr const char* kAlpha = "8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8";
// printf %s beta | sha256sum
constexpr const char* kBeta = "f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753";

std::string fault(const std::string& text) {
  const auto keys = parse_key_file(text);
  return keys ? "" : keys.error().detail;
}

}  // namespace

TEST_CASE("without keys everyone may", "[server][auth]") {
  CHECK(Auth({}).allows("", ""));
  CHECK(Auth({}).allows("Bearer whatever", ""));
}

TEST_CASE("any of the keys opens, and nothing else does", "[server][auth]") {
  Auth auth({"first", "second"});
  CHECK(auth.allows("Bearer first", ""));
  CHECK(auth.allows("bearer second", ""));
  CHECK(auth.allows("", "first"));
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer firs", "Bearer firstt", "Basic first",
                            "first", "Bearer  first", "Bearer first second"}) {
    INFO(wrong);
    CHECK_FALSE(auth.allows(wrong, ""));
  }
  CHECK_FALSE(auth.allows("", "Bearer first"));
  CHECK_FALSE(Auth({""}).allows("", ""));
  CHECK_FALSE(Auth({""}).allows("Bearer ", ""));
}

TEST_CASE("a file names keys by their hashes", "[server][auth]") {
  const auto keys = parse_key_file("# who\n\nalice " + std::string(kAlpha) +
                                   " concurrency=2\r\n  bob\t" + kBeta + " # second\n");
  REQUIRE(keys.has_value());
  REQUIRE(keys->size() == 2);
  CHECK((*keys)[0].name == "alice");
  CHECK((*keys)[0].max_concurrency == 2);
  CHECK((*keys)[1].max_concurrency == 0);
  Auth auth({"plain"}, *keys);
  CHECK(auth.allows("Bearer plain", ""));
  CHECK(auth.find("Bearer alpha", "")->key().name == "alice");
  CHECK(auth.find("", "beta")->key().name == "bob");
  CHECK(auth.find("Bearer " + std::string(kAlpha), "") == nullptr);
}

TEST_CASE("a line that is wrong is named", "[server][auth]") {
  const std::string alpha = kAlpha;
  CHECK(fault("") == "there is no key in it");
  CHECK(fault("# none\n") == "there is no key in it");
  CHECK(fault("alice\n").starts_with("line 1: expected NAME"));
  CHECK(fault("\nalice secret\n").starts_with("line 2: the second word"));
  CHECK(fault("alice g" + alpha.substr(1)).starts_with("line 1: the second word"));
  for (const char* word : {"concurrency=0", "concurrency=2x", "speed=2", "priority=1",
                           "requests-per-minute=", "tokens-per-minute=-1"}) {
    CHECK(fault("alice " + alpha + " " + word).starts_with(
        "line 1: \"" + std::string(word) + "\" is not concurrency=N"));
  }
  CHECK(fault("a " + alpha + "\na " + kBeta).ends_with("is there already"));
  CHECK(fault("a " + alpha + "\nb " + alpha).ends_with("is there already"));
}

TEST_CASE("a key has so many requests under way and no more", "[server][auth]") {
  Auth auth({}, {{"alice", {}, 2}, {"bob", {1}, 0}});
  KeyInUse key({"alice", {}, 2});
  CHECK(key.begin());
  CHECK(key.begin());
  CHECK_FALSE(key.begin());
  key.end();
  CHECK(key.begin());
  KeyInUse free({"bob", {}, 0});
  for (int i = 0; i < 100; ++i) CHECK(free.begin());
}

TEST_CASE("a key's line says what it may in a minute", "[server][auth]") {
  const auto keys = parse_key_file("alice " + std::string(kAlpha) +
                                   " requests-per-minute=2 tokens-per-minute=100 priority\nbob " + kBeta);
  REQUIRE(keys.has_value());
  CHECK((*keys)[0].may_set_priority);
  CHECK_FALSE((*keys)[1].may_set_priority);
  KeyInUse alice((*keys)[0]), bob((*keys)[1]);
  const auto begin = RateLimit::Clock::now();
  const auto after = [&](int seconds) { return begin + std::chrono::seconds(seconds); };
  CHECK(alice.take_turn(begin) == 0);
  CHECK(alice.take_turn(begin) == 0);
  CHECK(alice.take_turn(begin) == 30);
  CHECK(alice.take_turn(after(31)) == 0);
  CHECK(alice.take_turn(after(31)) > 0);
  for (int i = 0; i < 1000; ++i) REQUIRE(bob.take_turn(begin) == 0);
}

TEST_CASE("tokens are paid afterwards, and a debt is waited for", "[server][auth]") {
  RateLimit limit(60);
  const auto begin = RateLimit::Clock::now();
  const auto after = [&](int seconds) { return begin + std::chrono::seconds(seconds); };
  CHECK(limit.wait(begin) == 0);
  limit.spend(180, begin);  // one long answer
  CHECK(limit.wait(begin) == 121);
  CHECK(limit.wait(after(60)) == 61);
  CHECK(limit.wait(after(121)) == 0);
  CHECK(limit.wait(after(10'000)) == 0);  // what was not used is not kept beyond a minute's
  limit.spend(60, after(10'000));
  CHECK(limit.wait(after(10'000)) > 0);
}
