#include "load/compare.h"

#include <fmt/format.h>

#include <algorithm>

namespace quire::load {
namespace {

struct Figure {
  const char* name;
  double (*of)(const Report&);
};

constexpr Figure kFigures[] = {
    {"requests/s", [](const Report& r) { return r.requests_per_second(); }},
    {"output tokens/s", [](const Report& r) { return r.output_tokens_per_second(); }},
    {"goodput", [](const Report& r) { return r.goodput.value_or(0); }},
    {"time to first token p50", [](const Report& r) { return r.time_to_first_token.p50; }},
    {"time to first token p99", [](const Report& r) { return r.time_to_first_token.p99; }},
    {"between chunks p50", [](const Report& r) { return r.inter_token.p50; }},
    {"between chunks p99", [](const Report& r) { return r.inter_token.p99; }},
    {"per output token p50", [](const Report& r) { return r.per_output_token.p50; }},
    {"end to end p50", [](const Report& r) { return r.end_to_end.p50; }},
    {"end to end p99", [](const Report& r) { return r.end_to_end.p99; }},
};

}  // namespace

std::vector<PairedRatio> paired_ratios(const std::vector<PairedRun>& runs) {
  std::vector<PairedRatio> all;
  for (const Figure& figure : kFigures) {
    std::vector<double> ratios;
    for (const PairedRun& run : runs) {
      const double a = figure.of(run.a), b = figure.of(run.b);
      if (a > 0 && b > 0) ratios.push_back(a / b);
    }
    if (ratios.empty()) continue;
    std::sort(ratios.begin(), ratios.end());
    const std::size_t n = ratios.size();
    const double middle = n % 2 == 1 ? ratios[n / 2] : (ratios[n / 2 - 1] + ratios[n / 2]) / 2;
    all.push_back({figure.name, middle, ratios.front(), ratios.back()});
  }
  return all;
}

std::string paired_table(const std::vector<PairedRun>& runs) {
  std::string text = fmt::format("{:<26}{:>10}{:>10}{:>10}   a / b of {} pairs\n", "", "median",
                                 "least", "most", runs.size());
  for (const PairedRatio& one : paired_ratios(runs)) {
    text += fmt::format("{:<26}{:>10.3f}{:>10.3f}{:>10.3f}\n", one.name, one.median, one.least,
                        one.most);
  }
  return text;
}

std::string paired_json(const std::vector<PairedRun>& runs) {
  std::string text;
  for (const PairedRatio& one : paired_ratios(runs)) {
    text += fmt::format("{}\"{}\":{{\"median\":{:.5g},\"least\":{:.5g},\"most\":{:.5g}}}",
                        text.empty() ? "" : ",", one.name, one.median, one.least, one.most);
  }
  return fmt::format("{{\"pairs\":{},\"ratios\":{{{}}}}}", runs.size(), text);
}

}  // namespace quire::load
