#include "app/doctor/machine_facts.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <system_error>

#include "app/engines/backends.h"
#include "cpu/cpu_backend.h"
#include "hub/cache.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The rest of the line "name : rest" of a file such as /proc/cpuinfo.
std::string value_in(const fs::path& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == line.npos || line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1) != name)
      continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == line.npos ? "" : line.substr(begin);
  }
  return {};
}

std::int64_t number_in(const fs::path& path, const std::string& name) {
  const std::string value = value_in(path, name);
  return value.empty() ? 0 : std::strtoll(value.c_str(), nullptr, 10);
}

std::int64_t kib_in(const fs::path& path, const std::string& name) {
  return number_in(path, name) * 1024;
}

std::int64_t limit_of(rlim_t value) {
  constexpr rlim_t kMost = std::numeric_limits<std::int64_t>::max();
  return value == RLIM_INFINITY || value > kMost ? kUnlimited : static_cast<std::int64_t>(value);
}

void read_processor(MachineFacts& facts, const fs::path& root) {
  facts.cpu = value_in(root / "proc/cpuinfo", "model name");
  facts.instructions = name_of(detect_cpu_isa());
  facts.has_vnni = has_avx512_vnni();
  facts.online_cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t mask;
  CPU_ZERO(&mask);
  facts.allowed_cpus =
      sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : facts.online_cpus;
  facts.engine_cores = available_cores();
  facts.load = std::strtod(first_line(root / "proc/loadavg").c_str(), nullptr);
  const fs::path cpu = root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
  facts.governor = first_line(cpu);
  int nodes = 0;
  while (fs::exists(root / "sys/devices/system/node" / ("node" + std::to_string(nodes)))) ++nodes;
  facts.numa_nodes = std::max(1, nodes);
}

// "always [madvise] never": the word in brackets.
std::string chosen_in(const std::string& line) {
  const std::size_t begin = line.find('['), end = line.find(']');
  return begin == line.npos || end == line.npos ? "" : line.substr(begin + 1, end - begin - 1);
}

void read_memory(MachineFacts& facts, const fs::path& root) {
  const fs::path info = root / "proc/meminfo";
  const MemoryInfo usable = make_device(DeviceKind::cpu, 0)->memory();
  facts.memory_bytes = static_cast<std::int64_t>(usable.total);
  facts.available_bytes = static_cast<std::int64_t>(usable.available);
  facts.machine_bytes = kib_in(info, "MemTotal");
  facts.swap_used_bytes = kib_in(info, "SwapTotal") - kib_in(info, "SwapFree");
  const std::int64_t huge_page = kib_in(info, "Hugepagesize");
  facts.reserved_huge_bytes = number_in(info, "HugePages_Total") * huge_page;
  facts.free_huge_bytes = number_in(info, "HugePages_Free") * huge_page;
  facts.transparent_huge_pages =
      chosen_in(first_line(root / "sys/kernel/mm/transparent_hugepage/enabled"));
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 …"
std::string driver_in(const std::string& line) {
  for (std::size_t at = 0; (at = line.find_first_of("0123456789", at)) != line.npos;) {
    const std::size_t end = std::min(line.find_first_not_of("0123456789.", at), line.size());
    if (line[at - 1] == ' ' && line.substr(at, end - at).find('.') != line.npos)
      return line.substr(at, end - at);
    at = end;
  }
  return {};
}

void read_gpus(MachineFacts& facts, const fs::path& root) {
  constexpr int kMost = 64;
  facts.nvidia_driver = driver_in(first_line(root / "proc/driver/nvidia/version"));
  const auto choice = choose_device(DeviceKind::cuda);
  if (choice.has_error()) {
    facts.why_not_cuda = choose_device(DeviceKind::automatic)->why_not_cuda;
    return;
  }
  for (int i = 0; i < kMost; ++i) {
    try {
      const auto device = make_device(DeviceKind::cuda, i);
      const MemoryInfo memory = device->memory();
      facts.gpus.push_back({device->name(), static_cast<std::int64_t>(memory.total),
                            static_cast<std::int64_t>(memory.available)});
    } catch (const Failure&) {
      return;  // there are no more
    }
  }
}

void read_limits(MachineFacts& facts) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  facts.open_files = limit_of(limit.rlim_cur);
  facts.open_files_most = limit_of(limit.rlim_max);
  getrlimit(RLIMIT_MEMLOCK, &limit);
  facts.locked_bytes = limit_of(limit.rlim_cur);
  getrlimit(RLIMIT_AS, &limit);
  facts.address_bytes = limit_of(limit.rlim_cur);
  getrlimit(RLIMIT_NPROC, &limit);
  facts.processes = limit_of(limit.rlim_cur);
}

void read_cache(MachineFacts& facts) {
  fs::path at = hub::Cache::of_environment().root();
  facts.cache_folder = at.string();
  std::error_code error;
  while (!fs::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  const fs::space_info space = fs::space(at, error);
  facts.cache_free_bytes = error ? 0 : static_cast<std::int64_t>(space.available);
  facts.cache_writable = ::access(at.c_str(), W_OK) == 0;
}

}  // namespace

MachineFacts read_machine_facts(const fs::path& root) {
  MachineFacts facts;
  utsname system{};
  if (uname(&system) == 0) facts.kernel = std::string(system.sysname) + " " + system.release;
  read_processor(facts, root);
  read_memory(facts, root);
  read_gpus(facts, root);
  read_limits(facts);
  read_cache(facts);
  return facts;
}

}  // namespace quire
