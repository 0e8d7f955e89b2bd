#include "app/doctor/machine_advice.h"

#include <fmt/format.h>

#include "app/serve/open_files.h"
#include "engine/size_text.h"
#include "server/config.h"

namespace quire {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

void judge_processor(const MachineFacts& facts, std::vector<Advice>& list) {
  if (facts.instructions == "portable") {
    list.push_back(
        {"instructions",
         "this processor has no AVX2, or the virtual machine hides it: operators are several times "
         "slower",
         "give the virtual machine the host's processor (-cpu host), or use another machine"});
  }
  if (facts.allowed_cpus < facts.online_cpus) {
    list.push_back({"affinity",
                    fmt::format("this process may use {} of {} processors", facts.allowed_cpus,
                                facts.online_cpus),
                    "taskset, CPUAffinity= or the container's cpuset decide that"});
  }
  if (facts.governor == "powersave") {
    list.push_back({"governor", "the frequency governor saves power",
                    "cpupower frequency-set -g performance"});
  }
  if (facts.numa_nodes > 1) {
    list.push_back(
        {"numa",
         fmt::format("memory is in {} nodes, and reading the other node's is slower",
                     facts.numa_nodes),
         fmt::format("one engine for each: --data-parallel-size {} --engine-processes, or numactl "
                     "--cpunodebind=0 --membind=0",
                     facts.numa_nodes)});
  }
  if (facts.load > 0.5 * facts.allowed_cpus) {
    list.push_back({"load",
                    fmt::format("other work keeps {:.1f} of {} processors busy", facts.load,
                                facts.allowed_cpus),
                    "the figures below are what it leaves; each step waits for the slowest core"});
  }
}

void judge_memory(const MachineFacts& facts, std::vector<Advice>& list) {
  if (facts.available_bytes < 2 * kGiB) {
    list.push_back({"memory",
                    fmt::format("only {} of memory are free", bytes_text(facts.available_bytes)),
                    "end what else runs, or raise the container's limit"});
  }
  if (facts.memory_bytes < facts.machine_bytes) {
    list.push_back(
        {"cgroup",
         fmt::format("the cgroup allows {} of the machine's {}", bytes_text(facts.memory_bytes),
                     bytes_text(facts.machine_bytes)),
         "raise memory.max, MemoryMax= or the container's limit; plans keep to it as it is"});
  }
  if (facts.swap_used_bytes > kGiB) {
    list.push_back(
        {"swap",
         fmt::format("{} are swapped out: weights and cache in swap make steps take seconds",
                     bytes_text(facts.swap_used_bytes)),
         "swapoff -a, or end what takes the memory"});
  }
  if (facts.transparent_huge_pages == "never" || facts.transparent_huge_pages.empty()) {
    list.push_back({"huge_pages", "transparent huge pages are off: weights lie in pages of 4 KiB",
                    "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"});
  }
  if (facts.free_huge_bytes > 0) {
    list.push_back({"reserved_pages",
                    fmt::format("{} are reserved as huge pages, which Quire does not use",
                                bytes_text(facts.free_huge_bytes)),
                    "sysctl vm.nr_hugepages=0 gives them back"});
  }
}

void judge_gpu(const MachineFacts& facts, std::vector<Advice>& list) {
  if (facts.nvidia_driver.empty() || facts.why_not_cuda.empty()) return;
  list.push_back(
      {"gpu",
       fmt::format("NVIDIA's driver {} is loaded, and the GPU cannot be used: {}",
                   facts.nvidia_driver, facts.why_not_cuda),
       "build with the preset cuda; in a container, run with --gpus all or the device plugin"});
}

void judge_limits(const MachineFacts& facts, std::vector<Advice>& list) {
  const HttpLimits wanted;
  const auto connections =
      static_cast<std::int64_t>(wanted.max_connections + wanted.probe_connections);
  if (facts.open_files_most != kUnlimited && facts.open_files_most < connections + kSpareFiles) {
    list.push_back(
        {"open_files",
         fmt::format("{} files may be open, and --max-connections is {} by default: the server "
                     "will take fewer",
                     facts.open_files_most, wanted.max_connections),
         "ulimit -Hn 65536, LimitNOFILE=65536, or --ulimit nofile=65536 of the container"});
  }
  if (facts.address_bytes != kUnlimited) {
    list.push_back({"address_space",
                    fmt::format("the address space is limited to {}, and mapped weights count",
                                bytes_text(facts.address_bytes)),
                    "ulimit -v unlimited; to limit memory use a cgroup"});
  }
  const std::int64_t threads = 64 + 2 * facts.engine_cores;
  if (facts.processes != kUnlimited && facts.processes < threads) {
    list.push_back(
        {"processes",
         fmt::format("{} processes and threads are allowed to this user", facts.processes),
         fmt::format("ulimit -u {} at least, TasksMax= or pids.max", threads)});
  }
}

void judge_cache(const MachineFacts& facts, std::vector<Advice>& list) {
  if (!facts.cache_writable) {
    list.push_back(
        {"cache",
         fmt::format("models by name go to {}, which cannot be written", facts.cache_folder),
         "HF_HOME=/another/folder"});
  } else if (facts.cache_free_bytes < 5 * kGiB) {
    list.push_back({"cache",
                    fmt::format("models by name go to {}, where {} are free", facts.cache_folder,
                                bytes_text(facts.cache_free_bytes)),
                    "make room, or HF_HOME=/another/disk"});
  }
}

}  // namespace

std::vector<Advice> advice_for(const MachineFacts& facts) {
  std::vector<Advice> list;
  judge_processor(facts, list);
  judge_memory(facts, list);
  judge_gpu(facts, list);
  judge_limits(facts, list);
  judge_cache(facts, list);
  return list;
}

}  // namespace quire
