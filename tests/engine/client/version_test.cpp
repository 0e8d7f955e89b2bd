// Engines of another version, through the encoding that engines of other processes speak.

#include <catch2/catch.hpp>

#include "engine/wire/encoding.h"
#include "engine/wire/protobuf.h"
#include "tests/engine/client/fake_group.h"

namespace quire::test {
namespace {

std::optional<EngineEvent> decode(const std::string& bytes) {
  auto event = decode_event(bytes);
  if (event.has_error()) throw Failure(event.error());
  return std::move(*event);
}

// The first version's Ready: what architecture.md's handshake began with, and nothing since.
std::string old_ready(const Ready& ready) {
  proto::Writer body;
  body(1, ready.engine);
  body(3, ready.max_model_len);
  body(4, ready.num_gpu_blocks);
  body(5, ready.block_size);
  proto::Writer envelope;
  envelope.bytes(3, body.out);
  return envelope.out;
}

// A message with a field inside and one beside it that this version has never heard of.
std::string with_unknown_fields(const EngineEvent& event) {
  const std::string bytes = encode(event);
  proto::Reader reader(bytes);
  const int kind = reader.next();
  proto::Writer body;
  body.out = std::string(*reader.message());
  body(900, std::string("tomorrow's field"));
  body(901, 2.5);
  proto::Writer envelope;
  envelope.bytes(kind, body.out);
  envelope(77, std::int64_t{5});
  return envelope.out;
}

void check_group(std::vector<FakeEngineOptions> options, int vocab_size) {
  run(2, [&](asio::any_io_executor pool) -> awaitable<void> {
    FakeGroup fake(pool, options);
    co_await start(fake);
    const ReadyInfo& ready = fake.group->ready();
    CHECK(ready.max_model_len == 4096);
    CHECK(ready.block_size == 16);
    CHECK(ready.vocab_size == vocab_size);
    std::vector<Generation> generations;
    for (std::size_t i = 0; i < options.size(); ++i) {
      auto generation = fake.group->submit(request_of({1, 2, 3}, 20));
      REQUIRE(generation.has_value());
      generations.push_back(std::move(*generation));
    }
    for (Generation& generation : generations) {
      const RequestOutput all = co_await read_to_end(generation);
      CHECK(all.token_ids.size() == 20);
      CHECK(all.finish_reason == FinishReason::length);
    }
  });
}

FakeEngineOptions same_version() {
  FakeEngineOptions options;
  options.on_wire = [](const EngineEvent& event) { return decode(encode(event)); };
  return options;
}

FakeEngineOptions older() {
  FakeEngineOptions options;
  options.on_wire = [](const EngineEvent& event) {
    const auto* ready = std::get_if<Ready>(&event);
    return decode(ready != nullptr ? old_ready(*ready) : encode(event));
  };
  return options;
}

FakeEngineOptions newer() {
  FakeEngineOptions options;
  options.ready.version = "99.0";
  options.on_wire = [](const EngineEvent& event) { return decode(with_unknown_fields(event)); };
  return options;
}

FakeEngineOptions second(FakeEngineOptions options) {
  options.ready.engine = EngineId{1};
  return options;
}

TEST_CASE("an engine behind the encoding", "[engine][client][handshake]") {
  check_group({same_version()}, 1536);
}

TEST_CASE("an older engine leaves out what it does not know", "[engine][client][handshake]") {
  check_group({older()}, 0);
}

TEST_CASE("a newer engine says more than we know", "[engine][client][handshake]") {
  check_group({newer()}, 1536);
}

TEST_CASE("engines of three versions serve together", "[engine][client][handshake]") {
  check_group({older(), second(newer())}, 1536);
  check_group({newer(), second(same_version())}, 1536);
}

TEST_CASE("an event of a kind we do not know is passed over", "[engine][client][handshake]") {
  FakeEngineOptions options;
  options.on_wire = [](const EngineEvent& event) -> std::optional<EngineEvent> {
    if (!std::holds_alternative<StartupProgress>(event)) return event;
    proto::Writer envelope;
    envelope.bytes(42, "tomorrow's event");
    return decode(envelope.out);
  };
  check_group({options}, 1536);
}

}  // namespace
}  // namespace quire::test
