#pragma once
// The families whose value is a function of what an engine reports after a step, or of a request
// that has ended: one row each. What is counted as it happens stands in metric_families.h.

#include <span>

#include "server/metrics/metric_families.h"
#include "server/metrics/metrics.h"

namespace quire {

struct EngineStats;

enum class MetricKind : std::uint8_t { gauge, counter };

// Of EngineStats. A counter's value is the total since the engine's start.
struct StatRow {
  MetricKind kind;
  const char* name;
  const char* help;
  double (*value)(const EngineStats&);
  const char* label = nullptr;  // beside model_name and engine
  const char* label_value = nullptr;
  bool compat = false;  // under --metrics-compat alone
};

// Of RequestSample; `lengths` takes its buckets from the engine's context length.
enum class BucketKind : std::uint8_t { lengths, choices, phases, token_gaps };

struct RequestRow {
  const char* name;
  const char* help;
  BucketKind buckets;
  double (*value)(const RequestSample&);
  bool (*counts)(const RequestSample&) = nullptr;  // null: every request
};

std::span<const StatRow> stat_rows();
std::span<const RequestRow> request_rows();

}  // namespace quire
