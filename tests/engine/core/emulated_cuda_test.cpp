// The shipped model through the engine on the CUDA backend, its kernels emulated: the CPU backend's
// tokens.

#include <simdjson.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "cuda/cuda_backend.h"
#include "tests/engine/core/live_engine.h"

namespace quire::test {
namespace {

EngineBackend emulated_backend(const EngineConfig&) {
  EngineBackend backend{.kind = DeviceKind::cuda, .device = make_cuda_device({}), .ops = nullptr};
  backend.ops = make_cuda_ops(*backend.device);
  return backend;
}

struct Line {
  std::vector<TokenId> prompt, reference;
};

// The shortest prompts whose reference no near-tie can flip.
std::vector<Line> short_lines(std::size_t count) {
  std::vector<Line> lines;
  std::ifstream file("models/quire-tiny/eval.jsonl");
  simdjson::dom::parser parser;
  for (std::string text; std::getline(file, text);) {
    const simdjson::dom::element row = parser.parse(text);
    if (static_cast<double>(row["margin"]) < 0.25) continue;
    Line line;
    for (const std::int64_t id : row["prompt_ids"].get_array())
      line.prompt.push_back(static_cast<TokenId>(id));
    for (const std::int64_t id : row["reference_ids"].get_array())
      line.reference.push_back(static_cast<TokenId>(id));
    lines.push_back(std::move(line));
  }
  const auto size = [](const Line& l) { return l.prompt.size() + 4 * l.reference.size(); };
  std::sort(lines.begin(), lines.end(),
            [&](const Line& a, const Line& b) { return size(a) < size(b); });
  lines.resize(std::min(count, lines.size()));
  return lines;
}

awaitable<void> ask_all(asio::any_io_executor pool, std::vector<Line> lines) {
  LiveEngine engine(pool, tiny_config(), emulated_backend);
  co_await engine.start();
  std::vector<Generation> generations;
  for (const Line& line : lines) {
    auto generation = engine.group().submit(greedy_request(line.prompt, 64));
    REQUIRE(generation.has_value());
    generations.push_back(std::move(*generation));
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    RequestOutput output = co_await read_to_end(generations[i]);
    if (output.stop_token) output.token_ids.pop_back();
    CHECK(output.token_ids == lines[i].reference);
  }
}

}  // namespace

TEST_CASE("the emulated CUDA backend gives the reference's tokens", "[engine][cuda]") {
  run(2, [](asio::any_io_executor pool) { return ask_all(pool, short_lines(6)); });
}

}  // namespace quire::test
