#include "server/generation/push_name.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

namespace quire::test {
namespace {

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kKeeps = R"({"kv_transfer_params": {"do_remote_decode": true}})";

std::string with_id(const char* id) {
  return std::string(R"({"request_id": )") + id +
         R"(, "kv_transfer_params": {"do_remote_decode": true}})";
}

}  // namespace

TEST_CASE("a prefill over NIXL has the name that both servers make of its id", "[push_name]") {
  CHECK(nixl_push_name_of(kChat, "of-header", kKeeps) == "chatcmpl-of-header");
  CHECK(nixl_push_name_of("/v1/completions", "i", kKeeps) == "cmpl-i-0");
  CHECK(nixl_push_name_of("/inference/v1/generate", "i", kKeeps) == "generate-tokens-i");
  CHECK(nixl_push_name_of(kChat, "", with_id("\"of body\"")) == "chatcmpl-of body");
  CHECK(nixl_push_name_of(kChat, "header", with_id("\"of body\"")) == "chatcmpl-header");
  CHECK(nixl_push_name_of("/inference/v1/generate", "i",
                          R"({"sampling_params": {"extra_args": {"kv_transfer_params":
                             {"do_remote_decode": true}}}})") == "generate-tokens-i");
}

TEST_CASE("what asks for no prefill, or by a name that nobody knows, has none", "[push_name]") {
  CHECK(nixl_push_name_of(kChat, "", kKeeps).empty());
  CHECK(nixl_push_name_of(kChat, "i", "{}").empty());
  CHECK(nixl_push_name_of(kChat, "i", R"({"kv_transfer_params": {"do_remote_decode": false}})")
            .empty());
  CHECK(nixl_push_name_of(kChat, "i", R"({"messages": "do_remote_decode"})").empty());
  CHECK(nixl_push_name_of(kChat, "", with_id(("\"" + std::string(2000, 'x') + "\"").c_str()))
            .empty());
}

TEST_CASE("a body that is broken elsewhere says by its header who waits", "[push_name]") {
  const std::string broken = R"({"kv_transfer_params": {"do_remote_decode": true}, )";
  CHECK(nixl_push_name_of(kChat, "i", broken) == "chatcmpl-i");
  CHECK(nixl_push_name_of(kChat, "", broken).empty());
  CHECK(nixl_push_name_of(kChat, "", with_id("5")).empty());
  CHECK(nixl_push_name_of(kChat, "i", with_id("5")) == "chatcmpl-i");
}

TEST_CASE("a prefill over Mooncake has the name of its transfer", "[push_name]") {
  const auto body = [](const char* decode, const char* name) {
    return fmt::format(R"({{"kv_transfer_params": {{"do_remote_decode": {}, "transfer_id": {}}}}})",
                       decode, name);
  };
  CHECK(mooncake_name_of(body("true", "\"xfer-0123456789ab\"")) == "xfer-0123456789ab");
  CHECK(mooncake_name_of(body("true", "\"xfer-0123456789ab\"") + "}") == "xfer-0123456789ab");
  CHECK(mooncake_name_of(body("false", "\"xfer-0123456789ab\"")).empty());
  CHECK(mooncake_name_of(body("true", "null")).empty());
  CHECK(push_name_of(body("true", "\"xfer-0123456789ab\"")).empty());
}

TEST_CASE("of a fetch that is refused only what its owner is told by is passed on", "[push_name]") {
  const std::string blocks(100'000, '1');
  const std::string told = fetch_params_of(
      R"({"kv_transfer_params": {"do_remote_prefill": true, "remote_block_ids": [[)" + blocks +
      R"(]], "remote_host": "h", "remote_port": 5600, "remote_engine_id": "e", "other": {"a": 1},
          "remote_request_id": "r", "remote_num_tokens": 3, "tp_size": null}})");
  CHECK(told == R"({"remote_block_ids":[],"do_remote_prefill":true,"remote_host":"h",)"
                R"("remote_port":5600,"remote_engine_id":"e","remote_request_id":"r",)"
                R"("remote_num_tokens":3,"tp_size":null})");
  CHECK(fetch_params_of(R"({"kv_transfer_params": {"do_remote_prefill": false}})").empty());
  CHECK(fetch_params_of(R"({"kv_transfer_params": {"do_remote_prefill": true, "transfer_id": ")" +
                        blocks + R"("}})")
            .empty());
}

}  // namespace quire::test
