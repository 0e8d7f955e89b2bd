#pragma once
// What this machine has and what this process may use of it, read from the kernel. Sizes in bytes.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace quire {

inline constexpr std::int64_t kUnlimited = -1;

struct GpuFacts {
  std::string name;
  std::int64_t total_bytes = 0, available_bytes = 0;
};

struct MachineFacts {
  std::string kernel, cpu;
  std::string instructions;               // the best set that operators are compiled for
  bool has_vnni = false;                  // 8-bit products in one instruction
  int online_cpus = 0, allowed_cpus = 0;  // hardware threads; allowed by the affinity mask
  int engine_cores = 0;  // physical ones within mask and quota: the threads of an engine
  int numa_nodes = 1;
  double load = 0;       // average of the last minute
  std::string governor;  // of the frequency; empty: the kernel does not say

  std::int64_t memory_bytes = 0, available_bytes = 0;  // the smaller of machine and cgroup
  std::int64_t machine_bytes = 0;                      // without the cgroup
  std::int64_t swap_used_bytes = 0;
  std::string transparent_huge_pages;  // always, madvise, never; empty: none
  std::int64_t reserved_huge_bytes = 0, free_huge_bytes = 0;

  std::string nvidia_driver;  // its version; empty: not loaded
  std::string why_not_cuda;   // empty: a GPU can be used
  std::vector<GpuFacts> gpus;

  std::int64_t open_files = kUnlimited, open_files_most = kUnlimited;  // soft and hard
  std::int64_t locked_bytes = kUnlimited, address_bytes = kUnlimited;
  std::int64_t processes = kUnlimited;  // threads count

  std::string cache_folder;  // of models by name
  std::int64_t cache_free_bytes = 0;
  bool cache_writable = false;
};

// Of what files below `root` say, for /proc and /sys.
MachineFacts read_machine_facts(const std::filesystem::path& root = "/");

}  // namespace quire
