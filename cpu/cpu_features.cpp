#include <sched.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cpu/cpu_backend.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace quire {
namespace {

#if defined(__x86_64__)
// Linux gives a process the AMX tile registers on request (arch_prctl(2)).
bool request_amx() {
  constexpr int kArchReqXcompPerm = 0x1023;
  constexpr int kXfeatureTileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureTileData) == 0;
}

// Intel SDM, CPUID leaf 7: subleaf 0 EDX bits 22 (AMX-BF16) and 24 (AMX-TILE), subleaf 1 EAX bit 5
// (AVX512-BF16).
struct Leaf7 {
  bool avx512_bf16 = false;
  bool amx_bf16 = false;
  Leaf7() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return;
    amx_bf16 = (d >> 22 & 1u) != 0 && (d >> 24 & 1u) != 0;
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) avx512_bf16 = (a >> 5 & 1u) != 0;
  }
};
#endif

// Cores that share a physical core print the same list, such as "0,64".
std::string siblings_of(int cpu) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                     "/topology/thread_siblings_list");
  std::string siblings;
  return std::getline(file, siblings) ? siblings : std::to_string(cpu);
}

// Whole CPUs that cgroup v2 or v1 grants; a large number where there is no limit.
int cgroup_quota() {
  std::string quota;
  double period = 0;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> quota >> period && quota != "max") {
    return std::max(1, static_cast<int>(std::stod(quota) / period));
  }
  double limit = 0;
  std::ifstream v1("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (v1 >> limit && v1_period >> period && limit > 0 && period > 0) {
    return std::max(1, static_cast<int>(limit / period));
  }
  return 1 << 20;
}

// The logical processors of each core that this process was given: threads may have been bound to
// some of them since.
const std::vector<std::vector<int>>& given_cores() {
  static const std::vector<std::vector<int>> cores = [] {
    std::vector<std::vector<int>> found;
    cpu_set_t mask;
    CPU_ZERO(&mask);
    if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return found;
    std::map<std::string, std::size_t> known;  // by siblings
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &mask)) continue;
      const auto [at, is_new] = known.emplace(siblings_of(cpu), found.size());
      if (is_new) found.emplace_back();
      found[at->second].push_back(cpu);
    }
    return found;
  }();
  return cores;
}

}  // namespace

const char* name_of(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::portable:
      return "portable";
    case CpuIsa::avx2:
      return "avx2";
    case CpuIsa::avx512:
      return "avx512";
    case CpuIsa::avx512_bf16:
      return "avx512_bf16";
    case CpuIsa::amx_bf16:
      return "amx_bf16";
  }
  return "unknown";
}

CpuIsa detect_cpu_isa() {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq");
  const Leaf7 leaf7;
  if (avx512 && leaf7.avx512_bf16 && leaf7.amx_bf16 && request_amx()) return CpuIsa::amx_bf16;
  if (avx512 && leaf7.avx512_bf16) return CpuIsa::avx512_bf16;
  if (avx512) return CpuIsa::avx512;
  if (avx2) return CpuIsa::avx2;
#endif
  return CpuIsa::portable;
}

bool has_avx512_vnni() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

int available_cores() {
  const auto& cores = given_cores();
  if (cores.empty()) return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return std::clamp(static_cast<int>(cores.size()), 1, cgroup_quota());
}

bool use_cores_of_part(int part, int parts) {
  const auto& cores = given_cores();
  const auto count = static_cast<int>(cores.size());
  if (count < parts) return false;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (int core = part * count / parts; core < (part + 1) * count / parts; ++core)
    for (const int cpu : cores[static_cast<std::size_t>(core)]) CPU_SET(cpu, &mask);
  return sched_setaffinity(0, sizeof(mask), &mask) == 0;
}

}  // namespace quire
