#pragma once
// The same load at more and more conversations at a time: where a server gives no more.

#include <optional>
#include <string>
#include <vector>

#include "load/report.h"

namespace quire::load {

struct SweepStep {
  int concurrency = 0;
  Report report;
};

// What the knee must gain in output tokens a second over half as many conversations.
inline constexpr double kWorthwhileGain = 1.05;

// The last step that gained so much; nothing where no request was answered.
std::optional<std::size_t> knee_of(const std::vector<SweepStep>& steps);
// No further step is worth its time: the last two gained less, or everything failed.
bool is_over(const std::vector<SweepStep>& steps);

std::string sweep_table(const std::vector<SweepStep>& steps);
std::string sweep_json(const std::vector<SweepStep>& steps);

}  // namespace quire::load
