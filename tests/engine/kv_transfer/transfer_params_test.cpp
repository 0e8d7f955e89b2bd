// kv_transfer_params as vLLM, its proxy and llm-d's sidecar write them.

#include <catch2/catch.hpp>
#include <random>

#include "engine/kv_transfer/transfer_params.h"

namespace quire::test {
namespace {

const PeerList kPeers(std::vector<KvPeer>{
    {"10.0.0.7:5600"}, {"prefill-host.invalid"}, {"unix:/run/kv.sock"}});

std::string source(const std::string& host, const std::string& port, const std::string& more = "") {
  return R"({"do_remote_prefill": true, "do_remote_decode": false, "remote_block_ids": [[5, 6]],
             "remote_engine_id": "e", "remote_request_id": "r-1", "remote_host": )" +
         host + R"(, "remote_port": )" + port + R"(, "tp_size": 1, "remote_num_tokens": 90,
             "remote_registration_generation": 3, "transfer_mode": "pull",
             "remote_blocks_expiry_time": null, "a_new_one": {"x": [1]})" +
         more + "}";
}

std::string refused(const std::string& json, const PeerList& peers = kPeers) {
  const auto parsed = parse_transfer_params(json, peers);
  REQUIRE(parsed.has_error());
  CHECK(parsed.error().code == ErrorCode::invalid_argument);
  // Of a member: the one that its words name.
  const auto& [code, detail, field] = parsed.error();
  constexpr std::string_view kOf = "kv_transfer_params.";
  const std::string of =
      detail.starts_with(kOf)
          ? "/" + detail.substr(kOf.size(), detail.find_first_of(" :[", kOf.size()) - kOf.size())
          : "";
  CHECK(field == "/kv_transfer_params" + of);
  return parsed.error().detail;
}

}  // namespace

TEST_CASE("peers on this machine are here, with a port or without", "[kv_transfer]") {
  using List = std::vector<KvPeer>;
  CHECK(PeerList(List{{"127.0.0.1"}}).are_here());
  CHECK(PeerList(List{{"127.0.0.1:5600"}, {"localhost"}, {"::1"}, {"unix:/run/a"}}).are_here());
  CHECK_FALSE(PeerList(List{{"10.0.0.7"}}).are_here());
  CHECK_FALSE(PeerList(List{{"127.0.0.1"}, {"10.0.0.7:5600"}}).are_here());
}

TEST_CASE("a member of the wrong form is the one that is blamed", "[kv_transfer]") {
  const auto field_of = [](const std::string& json) {
    return parse_transfer_params(json, kPeers).error().field;
  };
  CHECK(field_of(source("\"10.0.0.7\"", "\"x\"")) == "/kv_transfer_params/remote_port");
  CHECK(field_of(R"({"do_remote_decode": 3})") == "/kv_transfer_params/do_remote_decode");
  CHECK(field_of("[]") == "/kv_transfer_params");
}

TEST_CASE("the first request of llm-d's sidecar asks for keeping", "[kv_transfer]") {
  const auto parsed = parse_transfer_params(
      R"({"do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": null,
          "remote_block_ids": null, "remote_host": null, "remote_port": null})",
      {});
  REQUIRE(parsed.has_value());
  CHECK(parsed->keep);
  CHECK_FALSE(parsed->source);
}

TEST_CASE("nothing asked for is nothing to do", "[kv_transfer]") {
  for (const char* json : {"", "{}", R"({"do_remote_decode": null})",
                           R"({"do_remote_decode": false, "do_remote_prefill": false})"}) {
    const auto parsed = parse_transfer_params(json, {});
    REQUIRE(parsed.has_value());
    CHECK_FALSE(parsed->keep);
    CHECK_FALSE(parsed->source);
  }
}

TEST_CASE("a source is read with what is unknown left alone", "[kv_transfer]") {
  const auto parsed = parse_transfer_params(source("\"10.0.0.7\"", "5600"), kPeers);
  REQUIRE(parsed.has_value());
  REQUIRE(parsed->source);
  CHECK(parsed->source->address.text() == "tcp://10.0.0.7:5600");
  CHECK(parsed->source->engine == "e");
  CHECK(parsed->source->prefill.key == "r-1");
  CHECK(parsed->source->prefill.generation == 3);
  CHECK(parsed->num_tokens == 90);
}

TEST_CASE("a peer is who its name leads to", "[kv_transfer]") {
  const auto allows = [](const char* peer, const std::string& host) {
    return parse_transfer_params(source("\"" + host + "\"", "5600"), PeerList({{peer}}))
        .has_value();
  };
  CHECK(allows("localhost:5600", "127.0.0.1"));
  CHECK(allows("localhost", "::1"));
  CHECK(allows("localhost:5600", "LOCALHOST"));
  CHECK(allows("127.0.0.1:5600", "localhost"));
  CHECK(allows("[::1]:5600", "0:0:0:0:0:0:0:1"));
  CHECK(allows("10.0.0.7:5600", "::ffff:10.0.0.7"));
  CHECK_FALSE(allows("localhost:5601", "127.0.0.1"));
  CHECK_FALSE(allows("localhost:5600", "127.0.0.2"));
  CHECK_FALSE(allows("unix:/run/kv.sock", "127.0.0.1"));
  CHECK_FALSE(allows("nobody-here.invalid:5600", "10.0.0.7"));
}

TEST_CASE("only peers of the list are asked", "[kv_transfer]") {
  using Catch::Contains;
  CHECK(parse_transfer_params(source("\"Prefill-Host.invalid\"", "1"), kPeers).has_value());
  CHECK(parse_transfer_params(source("\"unix:/run/kv.sock\"", "0"), kPeers).has_value());
  CHECK_THAT(refused(source("\"10.0.0.7\"", "5601")), Contains("KvTransferConfig::peers"));
  CHECK_THAT(refused(source("\"10.0.0.8\"", "5600")), Contains("remote_host"));
  CHECK_THAT(refused(source("\"unix:/etc/other\"", "0")), Contains("KvTransferConfig::peers"));
  CHECK_THAT(refused(source("\"localhost/../x\"", "5600")), Contains("remote_host"));
  CHECK_THAT(refused(source("\"10.0.0.7\"", "5600"), {}),
             Contains("KvTransferConfig::role decode"));
}

TEST_CASE("what is missing or cannot be is refused by name", "[kv_transfer]") {
  using Catch::Contains;
  CHECK_THAT(refused(R"({"do_remote_prefill": true})"), Contains("remote_host is missing"));
  CHECK_THAT(refused(R"({"do_remote_prefill": true, "do_remote_decode": true})"),
             Contains("both true"));
  CHECK_THAT(refused(source("null", "5600")), Contains("remote_host is missing"));
  CHECK_THAT(refused(source("\"10.0.0.7\"", "null")), Contains("remote_port is missing"));
  CHECK_THAT(refused(source("\"10.0.0.7\"", "70000")), Contains("remote_port"));
  CHECK_THAT(refused(source("\"10.0.0.7\"", "5600", R"(, "tp_size": 2)")), Contains("tp_size"));
  CHECK_THAT(refused(R"({"do_remote_prefill": true, "transfer_mode": "send"})"), Contains("pull"));
  CHECK_THAT(refused(source("\"10.0.0.7\"", "5600", R"(, "remote_num_tokens": 0)")),
             Contains("remote_num_tokens"));
  CHECK_THAT(refused(source("\"10.0.0.7\"", "5600", R"(, "remote_engine_id": "")")),
             Contains("remote_engine_id"));
  CHECK_THAT(refused("[1]"), Contains("kv_transfer_params"));
}

TEST_CASE("where NIXL's prefills are written a request need not say so", "[kv_transfer]") {
  using Catch::Contains;
  const auto asked = [](const std::string& more) {
    return R"({"do_remote_prefill": true, "remote_host": "10.0.0.7", "remote_port": 5600, )" +
           more + R"("remote_request_id": "r", "tp_size": 2})";
  };
  const auto read = [](const std::string& json) {
    return parse_transfer_params(json, kPeers, KvPlane::nixl, true);
  };
  const std::string engine = R"("remote_engine_id": "e", )";
  const auto parsed = read(asked(engine + R"("remote_block_ids": null, )"));
  REQUIRE(parsed.has_value());
  CHECK(parsed->source->pushed);
  CHECK(parsed->source->tensor_ranks == 2);
  CHECK(parsed->source->engine == "e");
  CHECK(parsed->num_tokens == 0);
  CHECK(read(asked(engine + R"("transfer_mode": "push", )")).has_value());
  CHECK(read(R"({"do_remote_decode": true})")->keep);
  CHECK_THAT(read(asked(engine + R"("transfer_mode": "pull", )")).error().detail,
             Contains("transfer_mode") && Contains("pull"));
  CHECK_THAT(read(asked("")).error().detail, Contains("remote_engine_id"));
  CHECK_THAT(read(asked(engine + R"("dcp_size": 2, )")).error().detail, Contains("dcp_size"));
  CHECK_THAT(read(R"({"do_remote_decode": true, "transfer_mode": "pull"})").error().detail,
             Contains("transfer_mode"));
}

TEST_CASE("a push is named by whoever asks for it, on both sides", "[kv_transfer]") {
  using Catch::Contains;
  const std::string name = R"("remote_request_id": "a name that nobody guesses", )";
  const auto asked = [](const std::string& more) {
    return R"({"do_remote_prefill": true, "transfer_mode": "push", "remote_host": "10.0.0.7", )" +
           more + R"("remote_port": 5600})";
  };
  const auto parsed = parse_transfer_params(asked(name), kPeers);
  REQUIRE(parsed.has_value());
  CHECK(parsed->source->pushed);
  CHECK(parsed->source->engine.empty());
  CHECK(parsed->source->prefill.key == "a name that nobody guesses");
  CHECK(parsed->source->prefill.generation == 0);
  CHECK(parsed->num_tokens == 0);
  const auto kept = parse_transfer_params(
      "{" + name + R"("do_remote_decode": true, "transfer_mode": "push"})", {});
  REQUIRE(kept.has_value());
  CHECK(kept->push_key == "a name that nobody guesses");
  CHECK_THAT(refused(asked("")), Contains("remote_request_id is missing"));
  CHECK_THAT(refused(asked(R"("remote_request_id": "short", )")), Contains("at least 16 bytes"));
  CHECK_THAT(refused(R"({"do_remote_decode": true, "transfer_mode": "push"})"),
             Contains("remote_request_id is missing"));
  CHECK(parse_transfer_params(asked(name), kPeers, KvPlane::nixl).has_error());
  KeptDescription said;
  said.address = parsed->source->address;
  said.engine = "e";
  said.prefill = parsed->source->prefill;
  said.num_tokens = 90;
  said.pushed = true;
  const auto again = parse_transfer_params(transfer_result(said), kPeers);
  REQUIRE(again.has_value());
  CHECK(again->source->pushed);
  CHECK(again->num_tokens == 90);
  CHECK(again->source->engine == "e");
}

TEST_CASE("what one server says of a prefill another understands", "[kv_transfer]") {
  KeptDescription kept;
  kept.engine = "e\"1";
  kept.prefill = {"k", 17};
  kept.num_tokens = 33;
  for (const char* address : {"10.0.0.7:5600", "unix:/run/kv.sock"}) {
    kept.address = *parse_socket_address(address);
    const auto parsed = parse_transfer_params(transfer_result(kept), kPeers);
    REQUIRE(parsed.has_value());
    REQUIRE(parsed->source);
    CHECK(parsed->source->address.text() == kept.address.text());
    CHECK(parsed->source->engine == "e\"1");
    CHECK(parsed->source->prefill.generation == 17);
    CHECK(parsed->num_tokens == 33);
  }
}

TEST_CASE("no params lead the reader astray", "[kv_transfer][fuzz]") {
  std::mt19937 random(4);
  const std::string good = source("\"10.0.0.7\"", "5600");
  for (int round = 0; round < 5000; ++round) {
    std::string bad = good;
    for (int i = 0; i < 3; ++i) bad[random() % bad.size()] = static_cast<char>(random());
    const auto parsed = parse_transfer_params(bad, kPeers);
    if (parsed && parsed->source) CHECK(parsed->num_tokens > 0);
  }
}

TEST_CASE("what vLLM's Mooncake proxy sends is read", "[kv_transfer][mooncake]") {
  const PeerList peers(std::vector<KvPeer>{{"10.0.0.7:8998"}});
  const auto read = [&](const std::string& json) {
    return parse_transfer_params(json, peers, KvPlane::mooncake);
  };
  const auto kept = read(R"({"do_remote_decode": true, "do_remote_prefill": false,
                             "transfer_id": "xfer-00112233445566"})");
  REQUIRE(kept.has_value());
  CHECK(kept->keep);
  CHECK(kept->kept_name == "xfer-00112233445566");
  const auto unnamed = read(R"({"do_remote_decode": true, "transfer_id": null})");
  REQUIRE(unnamed.has_value());
  CHECK(unnamed->kept_name.empty());
  const std::string good = R"({"do_remote_decode": false, "do_remote_prefill": true,
                               "remote_bootstrap_addr": "http://10.0.0.7:8998",
                               "remote_engine_id": "e", "transfer_id": "xfer-00112233445566"})";
  const auto source = read(good);
  REQUIRE(source.has_value());
  REQUIRE(source->source);
  CHECK(source->source->address.port == 8998);
  CHECK(source->source->engine == "e");
  CHECK(source->source->prefill.key == "xfer-00112233445566");
  CHECK(source->num_tokens == 0);
  for (const auto& [what, with] :
       {std::pair("http://10.0.0.7:8998", "http://10.0.0.8:8998"),
        std::pair("http://10.0.0.7:8998", "http://10.0.0.7:8999"),
        std::pair("http://10.0.0.7:8998", "10.0.0.7:8998"), std::pair("\"e\"", "\"\""),
        std::pair("\"e\"", "null"), std::pair("xfer-00112233445566", "short"),
        std::pair("remote_bootstrap_addr", "other"),
        std::pair("do_remote_decode\": false", "do_remote_decode\": true")}) {
    std::string bad = good;
    bad.replace(bad.find(what), std::string_view(what).size(), with);
    const auto refused = read(bad);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == ErrorCode::invalid_argument);
  }
}

}  // namespace quire::test
