#include "app/args/idle_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

namespace quire {
namespace {

[[noreturn]] void refuse(const std::string& flag, const std::string& because) {
  throw CLI::ValidationError(flag, "has no effect " + because + "; remove it");
}

}  // namespace

void refuse_given(const CLI::App& app, std::span<const std::string_view> flags,
                  const std::string& because) {
  for (const std::string_view flag : flags) {
    const CLI::Option* option = app.get_option_no_throw(std::string(flag));
    if (option != nullptr && option->count() > 0) refuse(std::string(flag), because);
  }
}

void refuse_given_of(const CLI::App& app, std::span<const std::string_view> headings,
                     const std::string& because) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() > 0 && std::ranges::find(headings, option->get_group()) != headings.end())
      refuse("--" + option->get_lnames().front(), because);
  }
}

void refuse_of_servers(const CLI::App& app, const std::string& what) {
  constexpr std::array<std::string_view, 6> kFlags{"--served-model-name", "--data-parallel-size",
                                                   "--scheduling-policy", "--max-num-queued-reqs",
                                                   "--max-num-queued-tokens", "--target-itl-ms"};
  constexpr std::array<std::string_view, 3> kHeadings{"Pooling", "KV events", "KV transfer"};
  const std::string because = "on " + what + ", which runs one engine without a server";
  refuse_given(app, kFlags, because);
  refuse_given_of(app, kHeadings, because);
}

void refuse_beside_mock(const CLI::App& app) {
  const std::string because = "with --device mock, which has no model and no cache";
  // What stands in front of the engine does read the other flags of the scheduler.
  constexpr std::array<std::string_view, 13> kFlags{
      "--dtype",          "--quantization",
      "--load-format",    "--cpu-threads",
      "--deterministic",  "--max-num-batched-tokens",
      "--scheduling-policy", "--enable-chunked-prefill",
      "--long-prefill-token-threshold", "--scheduler-reserve-full-isl",
      "--async-scheduling", "--max-num-queued-tokens",
      "--target-itl-ms"};
  constexpr std::array<std::string_view, 8> kHeadings{
      "Engines in other processes",
      "Pooling",   "KV cache",    "Recurrent states", "Speculative decoding", "CUDA graphs",
      "KV events", "KV transfer"};
  refuse_given(app, kFlags, because);
  refuse_given_of(app, kHeadings, because);
}

}  // namespace quire
