#include "app/bench/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_text.h"

namespace quire {
namespace {

// The better of two probes: other work on the machine lowers them.
MachineLimits best_of(const BenchReport& report) {
  const MachineLimits a = report.before.value_or(MachineLimits{});
  const MachineLimits b = report.after.value_or(MachineLimits{});
  return {.read_gb = std::max(a.read_gb, b.read_gb),
          .copy_gb = std::max(a.copy_gb, b.copy_gb),
          .bf16_gflops = std::max(a.bf16_gflops, b.bf16_gflops),
          .f32_gflops = std::max(a.f32_gflops, b.f32_gflops),
          .int8_gops = std::max(a.int8_gops, b.int8_gops)};
}

std::string limits_text(const MachineLimits& limits) {
  return fmt::format("read {:.1f} GB/s, copy {:.1f} GB/s, bf16 {:.0f} GFLOP/s, f32 {:.0f}, int8 {:.0f}",
                     limits.read_gb, limits.copy_gb, limits.bf16_gflops, limits.f32_gflops,
                     limits.int8_gops);
}

std::string limits_json(const std::optional<MachineLimits>& limits) {
  if (!limits) return "null";
  return fmt::format(
      R"({{"read_gb_s":{:.4g},"copy_gb_s":{:.4g},"bf16_gflops":{:.4g},"f32_gflops":{:.4g},"int8_gops":{:.4g}}})",
      limits->read_gb, limits->copy_gb, limits->bf16_gflops, limits->f32_gflops, limits->int8_gops);
}

std::string list_json(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ",") + fmt::format("{:.5g}", value);
  return "[" + text + "]";
}

std::string quoted(const std::string& text) {
  std::string out;
  append_json_text(out, text);
  return out;
}

std::string share(double value, double limit) {
  return value > 0 && limit > 0 ? fmt::format("{:.2f}", value / limit) : "-";
}

std::string number(double value, int digits) {
  return value > 0 ? fmt::format("{:.{}f}", value, digits) : "-";
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double peer_ratio(const BenchLine& line) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(line.rates.size(), line.peer_rates.size()); ++i)
    ratios.push_back(line.rates[i] / line.peer_rates[i]);
  return median(ratios);
}

double gigabytes_per_second(const BenchReport& report, const BenchLine& line) {
  if (line.what.generate == 0 || report.size.step_bytes == 0) return 0;
  const double context = line.what.depth + line.what.generate / 2.;
  const double step = report.size.step_bytes +
                      line.what.batch * context * report.size.kv_elements * report.kv_element_bytes;
  return median(line.rates) / line.what.batch * step / 1e9;
}

double giga_operations_per_second(const BenchReport& report, const BenchLine& line) {
  if (line.what.generate > 0 || report.size.token_products == 0) return 0;
  const double per_token =
      report.size.token_products + report.size.head_products / line.what.prompt +
      report.size.attention_products * (line.what.prompt + 1) / 2.;
  return median(line.rates) * 2 * per_token / 1e9;
}

std::string bench_table(const BenchReport& report) {
  const MachineLimits limits = best_of(report);
  std::string text = fmt::format("{}: {}, {} ({}), {} threads\n", report.model, report.dtype,
                                 report.device, report.instructions, report.threads);
  if (report.before) text += "probed before: " + limits_text(*report.before) + "\n";
  if (report.after) text += "probed after:  " + limits_text(*report.after) + "\n";
  text += fmt::format("ready in {:.2f} s, {:.2f} GB of files; resident {:.0f} MiB, planned for weights and KV cache {:.0f} MiB\n\n",
                      report.load_seconds, report.size.file_bytes / 1e9,
                      report.resident_bytes / 1048576, report.planned_bytes / 1048576);
  text += fmt::format("{:<18} {:>10} {:>19} {:>8} {:>8} {:>9} {:>9} {:>9}", "case", "tokens/s",
                      "least - most", "GB/s", "of read", "GOP/s", "of bf16", "of int8");
  text += report.peer.empty() ? "\n" : fmt::format(" {:>9} {:>7}\n", "peer", "ratio");
  for (const BenchLine& line : report.lines) {
    const double bytes = gigabytes_per_second(report, line);
    const double products = giga_operations_per_second(report, line);
    const auto [least, most] = std::minmax_element(line.rates.begin(), line.rates.end());
    text += fmt::format("{:<18} {:>10.2f} {:>19} {:>8} {:>8} {:>9} {:>9} {:>9}", line.what.name(),
                        median(line.rates), fmt::format("{:.2f} - {:.2f}", *least, *most),
                        number(bytes, 1), share(bytes, limits.read_gb), number(products, 0),
                        share(products, limits.bf16_gflops), share(products, limits.int8_gops));
    text += report.peer.empty()
                ? "\n"
                : fmt::format(" {:>9} {:>7}\n", number(median(line.peer_rates), 2),
                              number(peer_ratio(line), 3));
  }
  return text;
}

std::string bench_json(const BenchReport& report) {
  std::string lines;
  for (const BenchLine& line : report.lines) {
    lines += lines.empty() ? "" : ",";
    lines += fmt::format(
        R"({{"name":{},"n_prompt":{},"n_gen":{},"batch":{},"depth":{},"tokens_per_s":{:.5g},"rates":{},"peer_rates":{},"peer_ratio":{:.4g},"gb_per_s":{:.4g},"gops":{:.5g}}})",
        quoted(line.what.name()), line.what.prompt, line.what.generate, line.what.batch,
        line.what.depth, median(line.rates), list_json(line.rates), list_json(line.peer_rates),
        peer_ratio(line), gigabytes_per_second(report, line),
        giga_operations_per_second(report, line));
  }
  return fmt::format(
      R"({{"model":{},"dtype":{},"device":{},"instructions":{},"threads":{},"load_s":{:.4g},"file_bytes":{:.0f},"resident_bytes":{:.0f},"planned_bytes":{:.0f},"probed_before":{},"probed_after":{},"peer":{},"cases":[{}]}})",
      quoted(report.model), quoted(report.dtype), quoted(report.device),
      quoted(report.instructions), report.threads, report.load_seconds, report.size.file_bytes,
      report.resident_bytes, report.planned_bytes, limits_json(report.before),
      limits_json(report.after), quoted(report.peer), lines) + "\n";
}

}  // namespace quire
