#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "cpu/page_arena.h"

namespace quire {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;  // bytes
constexpr int kPopulate = 23;                            // MADV_POPULATE_WRITE, Linux 5.14

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

void release(void* data, std::size_t) { std::free(data); }

Buffer take(PageArena& pages, std::size_t bytes, MemoryPurpose purpose) {
  const bool is_large = bytes >= kHugePage;
  const std::size_t size = round_up(bytes == 0 ? 1 : bytes, 64);
  void* const data = is_large ? pages.take(bytes) : std::aligned_alloc(64, size);
  if (data != nullptr) return {data, bytes, is_large ? PageArena::give_back : release};
  throw Failure(ErrorCode::unavailable, "no " + std::to_string(bytes) + " bytes of memory for " +
                                            std::string(name_of(purpose)) + ": " +
                                            std::strerror(errno));
}

// In pieces: the address space is locked while a call lasts, and nothing else can start or end.
void touch(std::byte* data, std::size_t bytes) {
  constexpr std::size_t kPiece = 32 * kHugePage;
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    const std::size_t piece = std::min(kPiece, bytes - at);
    if (bytes < kHugePage || madvise(data + at, piece, kPopulate) != 0)
      std::memset(data + at, 0, piece);
  }
}

// Value of a "Name:   123 kB" line of /proc/meminfo, in bytes.
std::size_t meminfo(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  std::size_t kib = 0;
  while (file >> word) {
    if (word == name + ":" && file >> kib) return kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

// Of the machine; without /proc, as in a bare chroot, what the kernel says of it.
MemoryInfo machine_memory() {
  const MemoryInfo told{meminfo("MemTotal"), meminfo("MemAvailable")};
  struct sysinfo info {};
  if (told.total > 0 || ::sysinfo(&info) != 0) return told;
  return {info.totalram * info.mem_unit, (info.freeram + info.bufferram) * info.mem_unit};
}

// The number in a cgroup file; fallback where there is none or it says "max".
std::size_t cgroup_number(const std::string& path, std::size_t fallback) {
  std::ifstream file(path);
  std::size_t value = 0;
  return file >> value ? value : fallback;
}

// This process's cgroup directory: v2's line is "0::/path", v1's "N:memory:/path". In a container
// the path may lie outside what is mounted; then the mount's root is the container's own group.
MemoryInfo cgroup_memory() {
  constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  MemoryInfo info{kNone, kNone};
  const auto narrow = [&](const std::string& limit_file, const std::string& usage_file) {
    const std::size_t limit = cgroup_number(limit_file, kNone);
    if (limit >= info.total) return;
    const std::size_t usage = cgroup_number(usage_file, 0);
    info = {limit, limit > usage ? limit - usage : 0};
  };
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::string path = line.substr(line.rfind(':') + 1);
    if (line.rfind("0::", 0) == 0) {
      for (const std::string& at : {path, std::string()}) {
        const std::string dir = "/sys/fs/cgroup" + at;
        narrow(dir + "/memory.max", dir + "/memory.current");
      }
    } else if (line.find(":memory:") != std::string::npos) {
      for (const std::string& at : {path, std::string()}) {
        const std::string dir = "/sys/fs/cgroup/memory" + at;
        narrow(dir + "/memory.limit_in_bytes", dir + "/memory.usage_in_bytes");
      }
    }
  }
  return info;
}

class CpuEvent : public Event {
 public:
  void record(StreamRef) override {}
  bool ready() const override { return true; }
  void wait() override {}
};

class CpuDevice : public Device {
 public:
  std::string name() const override { return "cpu"; }
  MemoryInfo memory() const override {
    const MemoryInfo group = cgroup_memory();
    const MemoryInfo machine = machine_memory();
    return {std::min(machine.total, group.total), std::min(machine.available, group.available)};
  }
  bool is_host_memory() const override { return true; }
  MemoryLedger& ledger() override { return ledger_; }
  Buffer allocate(std::size_t bytes, MemoryPurpose purpose) override {
    return {take(pages_, bytes, purpose), ledger_, purpose, MemoryKind::device};
  }
  Buffer allocate_zeroed(std::size_t bytes, MemoryPurpose purpose) override {
    Buffer buffer = allocate(bytes, purpose);
    // Fresh pages are zero, but only promised: touched now, they cannot be missing later.
    touch(static_cast<std::byte*>(buffer.data()), bytes);
    return buffer;
  }
  Buffer allocate_host(std::size_t bytes, MemoryPurpose purpose) override {
    return {take(pages_, bytes, purpose), ledger_, purpose, MemoryKind::pinned};
  }
  StreamRef stream() override { return StreamRef::from_handle(nullptr); }
  StreamRef copy_stream() override { return stream(); }
  void copy(void* dst, const void* src, std::size_t bytes, StreamRef) override {
    if (bytes != 0) std::memcpy(dst, src, bytes);
  }
  void zero(void* dst, std::size_t bytes, StreamRef) override {
    if (bytes != 0) std::memset(dst, 0, bytes);
  }
  void synchronize(StreamRef) override {}
  std::unique_ptr<Event> create_event() override { return std::make_unique<CpuEvent>(); }
  void wait(StreamRef, Event&) override {}
  std::unique_ptr<Graph> capture(const std::function<void()>&) override { return nullptr; }

 private:
  PageArena pages_;
  MemoryLedger ledger_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace quire
