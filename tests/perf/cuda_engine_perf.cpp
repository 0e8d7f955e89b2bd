// Whole models through the engine on a GPU, with random weights of well-known shapes: one stream
// beside the rate at which this GPU reads memory, many streams, how long the GPU waits for the host
// between two steps, where the time of a step goes, and graphs (of decode steps, and of those with
// prompts) and early starts of kernels beside none. One JSON object a line.
//   cuda_engine_perf [--seconds N] [--tiny]     N: start no case after this many

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "cuda/cuda_backend.h"
#include "tests/perf/cuda_probes.h"
#include "tests/perf/perf_engine.h"
#include "tests/perf/perf_record.h"

namespace quire::perf {
namespace {

using WallClock = std::chrono::steady_clock;
double seconds_since(WallClock::time_point begin) {
  return std::chrono::duration<double>(WallClock::now() - begin).count();
}

// Qwen3-0.6B, Llama-3.1-8B and Llama-3.2-1B as published. The smallest first: what is wrong with
// all shows there, in seconds.
constexpr ModelShape kModels[] = {
    {"0.6b", "Qwen3ForCausalLM", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, true, 0.60, true},
    {"8b", "LlamaForCausalLM", "llama", 32, 4096, 14336, 32, 8, 128, 128256, false, 0.88, false,
     true},
    {"1b", "LlamaForCausalLM", "llama", 16, 2048, 8192, 32, 8, 64, 128256, true, 0.80},
};
constexpr ModelShape kTiny = {
    "tiny", "Qwen3ForCausalLM", "qwen3", 1, 64, 64, 1, 1, 64, 128, true, 0, true};

std::string name_of(const ModelShape& shape, int streams) {
  return std::string(shape.name) + ", streams " + std::to_string(streams);
}

// All requests decode from here on.
void begin_decode(PerfEngine& engine, int streams, int prompt, int output) {
  const int before = engine.begun();
  for (int i = 0; i < streams; ++i) engine.add(prompt, output);
  while (engine.begun() < before + streams) engine.step();
}

// Seconds of a step. Steps until each request has had its first token do not count.
double steady_decode(PerfEngine& engine, const ModelShape& shape, int streams, int prompt,
                     int steps, double read_rate) {
  const auto begin = WallClock::now();
  begin_decode(engine, streams, prompt, steps + 64);
  const double prefill = seconds_since(begin);
  for (int i = 0; i < 16; ++i) engine.step();
  engine.device().take_times();
  const auto steady = WallClock::now();
  int produced = 0, taken = 0;
  for (; taken < steps; ++taken) produced += engine.step();
  const double seconds = seconds_since(steady);
  const StepTimes gpu = engine.device().take_times();
  engine.finish();

  const double per_step = seconds / taken;
  Record record("decode", name_of(shape, streams));
  record.number("tokens_s", produced / seconds)
      .number("ms_per_step", per_step * 1e3)
      .number("us", per_step * 1e6)
      .number("gpu_idle_share", gpu.span > 0 ? gpu.idle / gpu.span : NAN)
      .number("goal_idle_share", 0.01)
      .number("prompt_tokens", prompt)
      .number("prefill_tokens_s", streams * prompt / prefill);
  const double bytes = shape.weight_bytes() + streams * shape.cache_bytes(prompt + 16 + steps / 2);
  record.number("gb_s", bytes / per_step * 1e-9)
      .number("share_of_read", bytes / per_step / read_rate);
  if (streams == 1) record.number("goal", shape.goal);
  return per_step;
}

// Where the time of a decode step goes: each operator between two events, without graphs, so no
// kernel begins ahead of another.
void time_operators(PerfEngine& engine, const ModelShape& shape, int streams, int prompt) {
  constexpr int kSteps = 5;
  begin_decode(engine, streams, prompt, 64);
  for (int i = 0; i < 4; ++i) engine.step();
  for (int i = 0; i < kSteps; ++i) {
    engine.ops().begin_step(8e-3);
    engine.step();
  }
  const TimedOps::Times times = engine.ops().end();
  engine.finish();
  double all = times.between;
  for (const auto& [name, sum] : times.operators) all += sum.seconds;
  const auto record = [&](const std::string& name, double seconds, double count) {
    Record("step", name_of(shape, streams) + ": " + name)
        .number("us", seconds / kSteps * 1e6)
        .number("times", count / kSteps)
        .number("share", seconds / all);
  };
  for (const auto& [name, sum] : times.operators) record(name, sum.seconds, sum.times);
  record("between operators", times.between, 0);
  record("all", all, 0);
}

// One stream, for ways that are put beside each other.
struct Decoded {
  double seconds = 0;  // of a step
  std::uint64_t digest = 0;
};
Decoded decode_of(PerfEngine& engine, int prompt, int steps) {
  begin_decode(engine, 1, prompt, steps + 64);
  for (int i = 0; i < 16; ++i) engine.step();
  const auto begin = WallClock::now();
  for (int i = 0; i < steps; ++i) engine.step();
  const double seconds = seconds_since(begin) / steps;
  engine.finish();
  return {seconds, engine.digest()};
}

// Prompts that come one after the other beside streams: seconds from a prompt's arrival to its
// first token.
Decoded prompts_beside(PerfEngine& engine, int streams, int prompt, int count) {
  begin_decode(engine, streams, prompt, 8 * count + 64);
  const auto begin = WallClock::now();
  for (int i = 0; i < count; ++i) {
    const int before = engine.begun();
    engine.add(prompt, 1);
    while (engine.begun() == before) engine.step();
  }
  const double seconds = seconds_since(begin) / count;
  engine.finish();
  return {seconds, engine.digest()};
}

void compare(const std::string& name, const char* other, const Decoded& chosen,
             const Decoded& way) {
  Record("ab", name)
      .text("a", "chosen")
      .text("b", other)
      .number("a_us", chosen.seconds * 1e6)
      .number("b_us", way.seconds * 1e6)
      .number("b_over_a", way.seconds / chosen.seconds)
      .text("same_tokens", chosen.digest == way.digest ? "yes" : "no");
}

void start_record(const ModelShape& shape, const char* way, WallClock::time_point begin) {
  Record("start", std::string(shape.name) + ", random weights" + way)
      .number("s", seconds_since(begin));
}

void measure(const ModelShape& shape, bool tiny, double read_rate) {
  const int prompt = tiny ? 20 : 896, steps = tiny ? 8 : 256;
  const int streams = tiny ? 2 : 8, question = tiny ? 20 : 100, questions = tiny ? 2 : 64;
  const auto ask = [&](PerfEngine& engine) {
    return prompts_beside(engine, streams, question, questions);
  };
  Decoded chosen, asked;
  {
    const auto begin = WallClock::now();
    PerfEngine engine(shape, tiny);
    start_record(shape, "", begin);
    if (shape.compares) {
      chosen = decode_of(engine, prompt, steps);
      asked = ask(engine);
    }
    steady_decode(engine, shape, tiny ? 2 : 1, prompt, steps, read_rate);
    if (shape.many)
      for (const int many : {8, 64, 256})
        steady_decode(engine, shape, many, 1000, 128, read_rate);
  }
  {
    const auto begin = WallClock::now();
    PerfEngine engine(shape, tiny, {.eager = true});
    start_record(shape, ", eager", begin);
    if (shape.compares)
      compare(name_of(shape, 1), "no graphs", chosen, decode_of(engine, prompt, steps));
    time_operators(engine, shape, 1, tiny ? 20 : 1000);
    if (shape.many) time_operators(engine, shape, 64, 1000);
  }
  if (!shape.compares) return;
  const auto compare_asked = [&](const char* other, const EngineWay& way) {
    PerfEngine engine(shape, tiny, way);
    decode_of(engine, prompt, steps);  // as the chosen one has
    compare(name_of(shape, streams) + ", prompts of " + std::to_string(question), other, asked,
            ask(engine));
  };
  compare_asked("graphs of decode steps only", {.only_decode = true});
  compare_asked("all graphs of steps with prompts", {.all_mixed = true});
  PerfEngine engine(shape, tiny, {.variants = {.begins_ahead = false}});
  compare(name_of(shape, 1), "kernels in turn", chosen, decode_of(engine, prompt, steps));
}

double read_rate_of_device(bool tiny) {
  const auto device = make_cuda_device({});
  return probe_read(*device, tiny);
}

void run(double limit, bool tiny) {
  const auto begin = WallClock::now();
  const double read_rate = read_rate_of_device(tiny);
  if (tiny) return measure(kTiny, true, read_rate);
  for (const ModelShape& shape : kModels) {
    if (seconds_since(begin) > limit) {
      Record("decode", shape.name).text("left_out", "no time");
      continue;
    }
    measure(shape, false, read_rate);
  }
}

}  // namespace
}  // namespace quire::perf

int main(int argc, char** argv) {
  double limit = 1e9;
  bool tiny = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--tiny") == 0) tiny = true;
    if (std::strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) limit = std::atof(argv[++i]);
  }
  if (const std::string reason = quire::cuda_unavailable(); !reason.empty()) {
    std::fprintf(stderr, "cuda_engine_perf: %s\n", reason.c_str());
    return 77;
  }
  try {
    quire::perf::run(limit, tiny);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_engine_perf: %s\n", error.what());
    return 1;
  }
}
