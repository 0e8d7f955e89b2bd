#include "app/flags/graph_flags.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/app/flags/parsed_flags.h"

namespace quire {

TEST_CASE("graphs are what vLLM's --compilation-config says of them") {
  const auto sizes = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"m", "--max-num-seqs=6", "--max-num-batched-tokens=256"});
    return parsed(std::move(flags)).graphs.capture_sizes;
  };
  const auto most = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), "m");
    const GraphConfig graphs = parsed(std::move(flags)).graphs;
    CHECK(graphs.capture_sizes.empty());
    return graphs.max_capture_size;
  };
  const auto is_eager = [](const char* json) {
    return parsed({"m", "--compilation-config", json}).graphs.enforce_eager;
  };
  using Sizes = std::vector<int>;
  CHECK(is_eager(R"({"cudagraph_mode": "NONE", "cudagraph_capture_sizes": [1]})"));
  CHECK(is_eager(R"({"mode": 0, "cudagraph_mode": "none"})"));
  CHECK(is_eager(R"({"cudagraph_mode": 0})"));
  CHECK_FALSE(is_eager(R"({"cudagraph_mode": 2})"));
  CHECK(is_eager(R"({"use_cudagraph": false})"));
  CHECK(is_eager(R"({"max_cudagraph_capture_size": 0})"));
  CHECK_FALSE(is_eager(R"({"cudagraph_mode": "FULL_DECODE_ONLY", "full_cuda_graph": true})"));
  CHECK_FALSE(is_eager("3"));
  CHECK_FALSE(is_eager("{}"));
  CHECK(sizes({"--compilation-config", R"({"cudagraph_capture_sizes": [1, 4, 512]})"}) ==
        Sizes{1, 4, 256});
  CHECK(sizes({"--compilation-config",
               R"({"cudagraph_capture_sizes": [1, 4, 512], "max_cudagraph_capture_size": 4})"}) ==
        Sizes{1, 4});
  CHECK(most({"--compilation-config", R"({"max_cudagraph_capture_size": 4})"}) == 4);
  CHECK(most({"--max-cudagraph-capture-size", "3"}) == 3);
  const auto only_decode = [](const char* json) {
    return parsed({"m", "--compilation-config", json}).graphs.only_decode;
  };
  CHECK(only_decode(R"({"cudagraph_mode": "full_decode_only"})"));
  CHECK_FALSE(only_decode(R"({"cudagraph_mode": "FULL_AND_PIECEWISE"})"));
  CHECK(parsed({"m", "--max-cudagraph-capture-size", "0"}).graphs.enforce_eager);
  CHECK(most({"--enforce-eager", "--max-cudagraph-capture-size", "4"}) == 0);
  CHECK(sizes({"--enforce-eager", "--compilation-config",
               R"({"cudagraph_capture_sizes": [1, 2]})"})
            .empty());
  CHECK(sizes({"--cudagraph-capture-sizes=1,2", "--compilation-config",
               R"({"cudagraph_mode": "NONE"})"})
            .empty());
  for (const char* json : {R"({"cudagraph_mode": "SOME"})", R"({"cudagraph_mode": 3})",
                           R"({"nonsense": 1})", "4", "x", R"({"cudagraph_capture_sizes": []})"}) {
    INFO(json);
    CHECK(refusal({"m", "--compilation-config", json}).starts_with("--compilation-config: "));
  }
  CHECK(refusal({"m", "--cudagraph-capture-sizes=1", "--compilation-config",
                 R"({"cudagraph_capture_sizes": [2]})"})
            .starts_with("--compilation-config: says other sizes"));
  CHECK(refusal({"m", "--max-cudagraph-capture-size=1", "--compilation-config",
                 R"({"cudagraph_capture_sizes": [2]})"})
            .starts_with("--compilation-config: says other sizes"));
}

TEST_CASE("what of the flags of graphs is without effect is told") {
  const auto idle = [](std::vector<std::string> flags, DeviceKind device) {
    CLI::App app;
    EngineConfig config;
    add_engine_flags(app, config);
    flags.insert(flags.begin(), "m");
    std::ranges::reverse(flags);
    app.parse(flags);
    std::vector<std::string> told = members_without_effect(app);
    const std::string forgotten = forget_idle_sizes(app, config, device);
    const bool has_none = config.graphs.capture_sizes.empty() &&
                          config.graphs.max_capture_size == 0 && !config.graphs.only_decode;
    CHECK(has_none == !forgotten.empty());
    if (!forgotten.empty()) told.push_back(forgotten);
    return told;
  };
  using Flags = std::vector<std::string>;
  const char* json =
      R"({"pass_config": {"fuse_norm_quant": true}, "splitting_ops": [], "backend": null,
          "custom_ops": ["none"], "cudagraph_capture_sizes": [1, 2]})";
  CHECK(idle({"--compilation-config", json}, DeviceKind::cuda) ==
        Flags{"--compilation-config.pass_config", "--compilation-config.splitting_ops",
              "--compilation-config.custom_ops"});
  CHECK(idle({"--compilation-config", json}, DeviceKind::cpu).back() ==
        "--compilation-config.cudagraph_capture_sizes");
  CHECK(idle({"--max-cudagraph-capture-size=8"}, DeviceKind::cpu) ==
        Flags{"--max-cudagraph-capture-size"});
  CHECK(idle({"--max-cudagraph-capture-size=8"}, DeviceKind::cuda).empty());
  CHECK(idle({"--cudagraph-capture-sizes=8"}, DeviceKind::cpu).empty());  // which is refused
  const char* mode = R"({"cudagraph_mode": "FULL_DECODE_ONLY"})";
  CHECK(idle({"--compilation-config", mode}, DeviceKind::cpu) ==
        Flags{"--compilation-config.cudagraph_mode"});
  CHECK(idle({"--compilation-config", mode}, DeviceKind::cuda).empty());
}

}  // namespace quire
