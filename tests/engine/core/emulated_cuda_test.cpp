// The shipped model through the engine on the CUDA backend, its kernels emulated: the CPU backend's
// tokens.

#include <catch2/catch.hpp>

#include "tests/engine/core/emulated_backend.h"
#include "tests/engine/core/eval_lines.h"
#include "tests/engine/core/live_engine.h"

namespace quire::test {
namespace {

// The shortest lines whose reference no near-tie can flip.
std::vector<EvalLine> short_lines(std::size_t count, double margin) {
  std::vector<EvalLine> lines = eval_lines("models/quire-tiny", margin);
  const auto size = [](const EvalLine& l) { return l.prompt.size() + 4 * l.reference.size(); };
  std::sort(lines.begin(), lines.end(),
            [&](const EvalLine& a, const EvalLine& b) { return size(a) < size(b); });
  lines.resize(std::min(count, lines.size()));
  return lines;
}

awaitable<void> ask_all(asio::any_io_executor pool, EngineConfig config, BackendFactory backend,
                        std::vector<EvalLine> lines) {
  LiveEngine engine(pool, config, backend);
  co_await engine.start();
  std::vector<Generation> generations;
  for (const EvalLine& line : lines) {
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
  run(2, [](asio::any_io_executor pool) {
    return ask_all(pool, tiny_config(), emulated_backend, short_lines(6, 0.25));
  });
}

TEST_CASE("over an fp8 cache both backends give the reference's tokens", "[engine][cuda][fp8]") {
  EngineConfig config = tiny_config();
  config.cache.cache_dtype = DType::fp8_e4m3;
  for (const BackendFactory& backend :
       {BackendFactory(cpu_backend), BackendFactory(emulated_backend)}) {
    run(2, [&](asio::any_io_executor pool) {
      return ask_all(pool, config, backend, short_lines(6, 0.25));
    });
  }
}

}  // namespace quire::test
