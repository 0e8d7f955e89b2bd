#pragma once
// A run's report as one HTML file with its plots, for a browser without a network.

#include <map>
#include <string>
#include <vector>

#include "load/report.h"

namespace quire::load {

// One server's part; several are drawn over each other.
struct HtmlRun {
  std::string name;  // its URL
  const Report& report;
  const std::vector<Record>& records;
};

std::string html_report(const std::vector<HtmlRun>& runs,
                        const std::map<std::string, std::string>& settings);

}  // namespace quire::load
