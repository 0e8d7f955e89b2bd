// Flags of transfers and of what is behind the cache, and vLLM's object for both.

#include <catch2/catch.hpp>

#include "tests/app/flags/parsed_flags.h"

namespace quire {

TEST_CASE("What is behind the cache has flags, and vLLM's") {
  const KvOffloadConfig own = parsed({"m", "--kv-offload-bytes=2GiB", "--kv-offload-path=/kv",
                                      "--kv-offload-path-bytes=5GiB"})
                                  .kv_offload;
  CHECK(own.host_bytes == std::int64_t{2} << 30);
  CHECK(own.path == "/kv");
  CHECK(own.path_bytes == std::int64_t{5} << 30);
  CHECK(parsed({"m", "--kv-offloading-size=0.5", "--kv-offloading-backend=native"})
            .kv_offload.host_bytes == std::int64_t{512} << 20);
  const std::string connector =
      R"(--kv-transfer-config={"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
         "kv_connector_extra_config": {"cpu_bytes_to_use": 1048576, "eviction_policy": "lru"}})";
  const EngineConfig vllm = parsed({"m", connector});
  CHECK(vllm.kv_offload.host_bytes == 1 << 20);
  CHECK(vllm.kv_transfer.role == KvRole::none);
  const auto says = [](const std::string& text, const std::string& word) {
    return text.find(word) != std::string::npos;
  };
  CHECK(
      says(refusal({"m", "--kv-offloading-size=1", "--kv-offloading-backend=lmcache"}), "native"));
  CHECK(says(refusal({"m", "--kv-offloading-size=-1"}), "positive"));
  CHECK(says(refusal({"m", "--kv-offload-bytes=0"}), "positive"));
  CHECK(says(refusal({"m", "--kv-offload-bytes=much"}), "--kv-offload-bytes"));
  CHECK(says(refusal({"m", connector, "--kv-offload-bytes=1GiB"}), "give one"));
  CHECK(says(refusal({"m", R"(--kv-transfer-config={"kv_connector": "OffloadingConnector",
      "kv_role": "kv_both", "kv_connector_extra_config": {"cpu_bytes_to_use": 1, "block_size": 64}})"}),
             "block_size"));
  CHECK(says(refusal({"m", R"(--kv-transfer-config={"kv_connector": "OffloadingConnector",
      "kv_role": "kv_both", "kv_connector_extra_config": {}})"}),
             "cpu_bytes_to_use"));
  CHECK(says(refusal({"m", R"(--kv-transfer-config={"kv_connector": "LMCacheConnectorV1",
      "kv_role": "kv_both"})"}),
             "OffloadingConnector"));
}

TEST_CASE("vLLM's object for transfers goes with flags that say the rest") {
  const std::string nixl = R"(--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_both"})";
  const EngineConfig both =
      parsed({"m", "--kv-listen=10.0.0.7:5600", nixl, "--kv-peer=10.0.0.8", "--kv-peer=10.0.0.9"});
  CHECK(both.kv_transfer.listen == "10.0.0.7:5600");
  CHECK(both.kv_transfer.uses_nixl());
  CHECK(both.kv_transfer.peers.size() == 2);
  const EngineConfig behind =
      parsed({"m", "--kv-role=decode", "--kv-peer=10.0.0.8",
              R"(--kv-transfer-config={"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
                 "kv_connector_extra_config": {"cpu_bytes_to_use": 1048576}})"});
  CHECK(behind.kv_offload.host_bytes == 1 << 20);
  CHECK(behind.kv_transfer.role == KvRole::decode);
  CHECK(behind.kv_transfer.peers.size() == 1);
  const auto says = [](const std::string& text, const std::string& word) {
    return text.find(word) != std::string::npos;
  };
  CHECK(says(refusal({"m", nixl, "--kv-role=decode"}), "says what --kv-role says"));
  CHECK(says(refusal({"m", "--kv-plane=local", nixl}), "says what --kv-plane says"));
  CHECK(says(refusal({"m", "--kv-peer=10.0.0.8",
                      R"(--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_consumer",
                         "kv_connector_extra_config":{"kv_peers":["10.0.0.9"]}})"}),
             "says what --kv-peer says"));
  const auto extra = [&](const std::string& connector, const std::string& field) {
    return refusal({"m", R"(--kv-transfer-config={"kv_connector_extra_config":{)" + field +
                             R"(},"kv_connector":")" + connector + R"(","kv_role":"kv_both"})"});
  };
  CHECK(says(extra("QuireConnector", R"("mooncake_protocol":"tcp")"), "mooncake_protocol"));
  CHECK(says(extra("QuireConnector", R"("backends":["UCX"])"), "backends"));
  CHECK(says(extra("NixlConnector", R"("peer_block_size":16)"), "peer_block_size"));
  const std::string pull = "--nixl-transfer-mode=pull";
  CHECK(says(refusal({"m", "--kv-role=both", pull}), "--nixl-transfer-mode"));
  CHECK(says(refusal({"m", pull, "--kv-plane=mooncake"}), "without --kv-plane nixl"));
  CHECK_FALSE(parsed({"m", pull, "--kv-plane=nixl"}).kv_transfer.nixl.pushes);
  CHECK(says(refusal({"m", "--kv-transfer-buffer-bytes=0"}), "positive"));
  CHECK(says(refusal({"m", "--kv-offloading-size=1e-12"}), "less than a byte"));
  CHECK(says(refusal({"m", "--kv-offload-bytes=4MiB", "--kv-offloading-size=1"}), "another flag"));
}

}  // namespace quire
