// What servers say to each other where whoever prefills writes.

#include "engine/kv_nixl/push_registration.h"

#include <catch2/catch.hpp>
#include <random>

#include "engine/kv_events/msgpack.h"
#include "engine/kv_nixl/handshake.h"
#include "engine/kv_nixl/profile.h"
#include "tests/support/mutate.h"

namespace quire::test {
namespace {

NixlPushRegistration some_registration() {
  NixlPushRegistration registration;
  registration.request = "cmpl-abc-0-12ab34cd";
  registration.decode_engine = "decoding";
  registration.decode_host = "10.0.0.8";
  registration.decode_port = 5601;
  registration.decode_ranks = 2;
  registration.blocks = {{7, 300, 70'000}, {}, {1}};
  registration.prefill_engine = "prefilling";
  registration.prefill_host = "10.0.0.7";
  registration.prefill_port = 5600;
  return registration;
}

}  // namespace

TEST_CASE("a registration is read as it was written", "[nixl]") {
  NixlPushRegistration registration = some_registration();
  for (const bool is_quire : {false, true}) {
    if (is_quire) registration.prompt_hash = UINT64_MAX;
    const auto read = parse_push_registration(encode_push_registration(registration));
    REQUIRE(read.has_value());
    CHECK(read->request == registration.request);
    CHECK(read->decode_engine == "decoding");
    CHECK(read->decode_host == "10.0.0.8");
    CHECK(read->decode_port == 5601);
    CHECK(read->decode_ranks == 2);
    CHECK(read->blocks == registration.blocks);
    CHECK(read->num_blocks() == 4);
    CHECK(read->prefill_engine == "prefilling");
    CHECK(read->prefill_ranks == 1);
    CHECK(read->prompt_hash == registration.prompt_hash);
  }
}

// Of {"request_id": "cmpl-abc-0-12ab34cd", …} by msgspec.msgpack.encode, as vLLM 0.33.0 sends it.
TEST_CASE("a registration has the bytes that vLLM's has", "[nixl]") {
  NixlPushRegistration registration = some_registration();
  registration.blocks = {{5, 200}};
  const std::string bytes = encode_push_registration(registration);
  const std::string begin =
      "PUSH_REG:\x8b\xaarequest_id\xb3"
      "cmpl-abc-0-12ab34cd";
  CHECK(bytes.substr(0, begin.size()) == begin);
  CHECK(bytes.find(std::string("\xaflocal_block_ids\x91\x92\x05\xcc\xc8", 21)) != bytes.npos);
}

TEST_CASE("a registration that is damaged or beyond a limit is refused by name", "[nixl]") {
  const auto error_of = [](const NixlPushRegistration& registration) {
    const auto read = parse_push_registration(encode_push_registration(registration));
    return read.has_error() ? read.error().detail : std::string();
  };
  const auto with = [](auto change) {
    NixlPushRegistration registration = some_registration();
    change(registration);
    return registration;
  };
  using R = NixlPushRegistration;
  CHECK(error_of(some_registration()).empty());
  CHECK(error_of(with([](R& r) { r.request = ""; })).find("request_id") != std::string::npos);
  CHECK(error_of(with([](R& r) { r.request = std::string(1025, 'a'); })).find("1024") !=
        std::string::npos);
  CHECK(error_of(with([](R& r) { r.decode_port = 0; })).find("decode_port") != std::string::npos);
  CHECK(error_of(with([](R& r) { r.decode_ranks = 4096; })).find("decode_tp_size") !=
        std::string::npos);
  CHECK(error_of(with([](R& r) { r.blocks = {{-1}}; })).find("local_block_ids") !=
        std::string::npos);
  CHECK(error_of(with([](R& r) { r.blocks = {{std::int64_t{1} << 31}}; })).find("2147483647") !=
        std::string::npos);
  CHECK(error_of(with([](R& r) { r.blocks.resize(65); })).find("64") != std::string::npos);
  CHECK(parse_push_registration("PUSH_REG:" + std::string(2 << 20, '\xc0')).has_error());
  for (const char* bad : {"", "PUSH_REG:", "PUSH_REG:\xc0", "PUSH_REG:\x80", "HB:a"})
    CHECK(parse_push_registration(bad).has_error());
}

TEST_CASE("no damage to a registration leads out of it", "[nixl][fuzz]") {
  const std::string whole = encode_push_registration(some_registration());
  std::mt19937 random(4);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = whole;
    overwrite_bytes(bytes, 4, random, 9);
    if (random() % 3 == 0) bytes.resize(9 + random() % (bytes.size() - 9));
    if (const auto read = parse_push_registration(bytes)) {
      CHECK(read->decode_ranks <= 1024);
      for (const auto& group : read->blocks)
        for (const std::int64_t id : group) CHECK((id >= 0 && id <= 0x7fffffff));
    }
  }
}

TEST_CASE("requests' names lose their random end, and nothing else", "[nixl]") {
  CHECK(base_request_name("cmpl-abc-0-12ab34CD") == "cmpl-abc-0");
  CHECK(base_request_name("cmpl-abc-0") == "cmpl-abc-0");
  CHECK(base_request_name("cmpl-abc-12ab34cg") == "cmpl-abc-12ab34cg");
  CHECK(base_request_name("-12ab34cd") == "-12ab34cd");
  CHECK(base_request_name("chatcmpl-00000000-0000-0000-0000-000000000000") ==
        "chatcmpl-00000000-0000-0000-0000-000000000000");
  CHECK(base_request_name(random_request_name("cmpl-abc-0")) == "cmpl-abc-0");
  CHECK(random_request_name("a") != random_request_name("a"));
}

TEST_CASE("notices of an end are read in their own forms only", "[nixl]") {
  CHECK(parse_nixl_done("a:b:2")->request == "a:b");
  CHECK(parse_nixl_done("a:b:2")->ranks == 2);
  for (const char* bad : {"", ":1", "a", "a:", "a:0", "a:-1", "a:1x"}) CHECK(!parse_nixl_done(bad));
  CHECK(*parse_push_forgotten(encode_push_forgotten("a:b")) == "a:b");
  CHECK(!parse_push_forgotten("QUIRE_FORGOTTEN:"));
  const auto lost = parse_push_lost(encode_push_lost({"a:b", "no_room"}));
  REQUIRE(lost);
  CHECK(lost->request == "a:b");
  CHECK(lost->reason == "no_room");
  CHECK(!parse_push_lost("QUIRE_LOST:no_room"));
  CHECK(!parse_push_lost("QUIRE_LOST:no_room:"));
}

TEST_CASE("questions about registrations and their answers are read as they were written",
          "[nixl][fuzz]") {
  const std::vector<std::string> names{"a", "with, a comma-12345678", std::string("\0\n", 2)};
  const std::string question = encode_push_question(names);
  CHECK(parse_push_question(question) == names);
  CHECK_FALSE(parse_push_question(encode_metadata_request({0, 0}, *find_nixl_profile(""))));
  CHECK_FALSE(
      parse_push_question(encode_push_question(std::vector<std::string>(kMostPushNames + 1, "a"))));
  CHECK_FALSE(parse_push_question(encode_push_question({std::string(1025, 'a')})));
  std::vector<NixlPushStatus> states;
  for (const NixlPushState state :
       {NixlPushState::unknown, NixlPushState::held, NixlPushState::written, NixlPushState::lost})
    states.push_back({state, state == NixlPushState::lost ? "no_room" : ""});
  const std::string answer = encode_push_states(states);
  const auto read = parse_push_states(answer);
  REQUIRE(read);
  REQUIRE(read->size() == states.size());
  for (std::size_t i = 0; i < states.size(); ++i) {
    CHECK((*read)[i].state == states[i].state);
    CHECK((*read)[i].reason == states[i].reason);
  }
  CHECK_FALSE(parse_push_states(""));
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string damaged = i % 2 == 0 ? question : answer;
    overwrite_bytes(damaged, 3, random);
    if (i % 3 == 0) damaged.resize(random() % damaged.size());
    parse_push_question(damaged);
    parse_push_states(damaged);
  }
}

TEST_CASE("servers that push have another hash than those that are read", "[nixl]") {
  CompatibilityFactors factors;
  for (const NixlProfile& profile : nixl_profiles()) {
    factors.pushes = false;
    const std::string pull = compatibility_json(factors, profile);
    factors.pushes = true;
    CHECK((compatibility_json(factors, profile) != pull) == profile.has_push());
  }
}

}  // namespace quire::test
