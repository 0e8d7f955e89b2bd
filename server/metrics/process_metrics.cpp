#include "server/metrics/process_metrics.h"

#include <prometheus/metric_family.h>

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace quire {

namespace {

// Fields of /proc/self/stat by their number in proc(5), from 3 on: what follows the name.
struct ProcessStat {
  double user_ticks = 0, system_ticks = 0, start_ticks = 0, virtual_bytes = 0, resident_pages = 0;
};

ProcessStat read_stat() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  ProcessStat stat;
  std::string field;
  for (int number = 3; fields >> field && number <= 24; ++number) {
    const double value = std::strtod(field.c_str(), nullptr);
    if (number == 14) stat.user_ticks = value;
    if (number == 15) stat.system_ticks = value;
    if (number == 22) stat.start_ticks = value;
    if (number == 23) stat.virtual_bytes = value;
    if (number == 24) stat.resident_pages = value;
  }
  return stat;
}

double boot_time() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("btime ", 0) == 0) return std::strtod(line.c_str() + 6, nullptr);
  }
  return 0;
}

double open_descriptors() {
  std::error_code ignored;
  const std::filesystem::directory_iterator all("/proc/self/fd", ignored);
  return static_cast<double>(std::distance(begin(all), end(all)));
}

double max_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<double>(limit.rlim_cur);
}

prometheus::MetricFamily family(const char* name, const char* help, prometheus::MetricType type,
                                double value) {
  prometheus::MetricFamily family{name, help, type, {}};
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  if (type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  return family;
}

}  // namespace

std::vector<prometheus::MetricFamily> ProcessMetrics::Collect() const {
  using prometheus::MetricType;
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
  const ProcessStat stat = read_stat();
  return {
      family("process_cpu_seconds_total", "User and system CPU time", MetricType::Counter,
             (stat.user_ticks + stat.system_ticks) / ticks),
      family("process_resident_memory_bytes", "Resident memory", MetricType::Gauge,
             stat.resident_pages * page),
      family("process_virtual_memory_bytes", "Virtual memory", MetricType::Gauge,
             stat.virtual_bytes),
      family("process_start_time_seconds", "Start of the process since the epoch",
             MetricType::Gauge, boot_time() + stat.start_ticks / ticks),
      family("process_open_fds", "Open file descriptors", MetricType::Gauge, open_descriptors()),
      family("process_max_fds", "Limit of open file descriptors", MetricType::Gauge,
             max_descriptors()),
  };
}

}  // namespace quire
