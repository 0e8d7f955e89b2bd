#pragma once
// Recorded traffic to send again: when each request came, how long it and its answer were, and what
// it shared with others.

#include <cstdint>
#include <filesystem>
#include <vector>

namespace quire::load {

struct TraceRow {
  double due = 0;  // seconds after the first
  int input_tokens = 0;
  int output_tokens = 0;
  std::vector<std::uint64_t> blocks;  // ids of what the prompt is made of, kTraceBlockTokens each
};

inline constexpr int kTraceBlockTokens = 512;

// In order of time. Forms, told apart by content:
// - lines of {"timestamp": milliseconds, "input_length": N, "output_length": N, "hash_ids": […]},
//   as Mooncake publishes them;
// - CSV with the columns Timestamp (seconds), "Request tokens", "Response tokens" (BurstGPT), or
//   TIMESTAMP (date and time), ContextTokens, GeneratedTokens (Azure).
// Throws Failure with file and line.
std::vector<TraceRow> read_trace(const std::filesystem::path& path);

}  // namespace quire::load
