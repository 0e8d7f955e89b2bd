#pragma once
// Two servers under the same load in turn: what else the machines do is the same for both, so
// ratios of neighbouring runs hold where absolute figures do not.

#include <string>
#include <vector>

#include "load/report.h"

namespace quire::load {

struct PairedRun {
  Report a, b;
};

// Of each figure the ratio a / b: the median of the pairs', the least and the largest.
struct PairedRatio {
  std::string name;
  double median = 0, least = 0, most = 0;
};

std::vector<PairedRatio> paired_ratios(const std::vector<PairedRun>& runs);
std::string paired_table(const std::vector<PairedRun>& runs);
std::string paired_json(const std::vector<PairedRun>& runs);

}  // namespace quire::load
