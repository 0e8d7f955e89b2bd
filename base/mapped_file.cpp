#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/lost_files.h"

namespace quire {

namespace {

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& message,
                       ErrorCode code = ErrorCode::invalid_argument) {
  throw Failure(code, file.string() + ": " + message);
}

// What is mapped where, as a signal handler may read it: nothing moves, nothing is freed. A file
// beyond the last slot goes without a name.
struct Slot {
  std::atomic<const std::byte*> begin = nullptr;
  std::atomic<std::size_t> size = 0;
  std::array<char, 256> name = {};  // the end of the path, with a terminator
};
std::array<Slot, 512> mapped_files;
std::mutex mapped_files_mutex;  // of who writes
std::atomic<int> lost_exit_code = 0;

void remember(const std::byte* begin, std::size_t size, const std::string& path) {
  const std::lock_guard lock(mapped_files_mutex);
  for (Slot& slot : mapped_files) {
    if (slot.begin != nullptr) continue;
    const std::size_t length = std::min(path.size(), slot.name.size() - 1);
    path.copy(slot.name.data(), length, path.size() - length);
    slot.name[length] = '\0';
    slot.size = size;
    slot.begin = begin;
    return;
  }
}

void forget_file(const std::byte* begin) {
  const std::lock_guard lock(mapped_files_mutex);
  for (Slot& slot : mapped_files) {
    if (slot.begin != begin) continue;
    slot.begin = nullptr;
    return;
  }
}

void say(const char* text) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, std::strlen(text));
}

void on_bus_error(int signal, siginfo_t* info, void*) {
  const auto* address = static_cast<const std::byte*>(info->si_addr);
  for (const Slot& slot : mapped_files) {
    const std::byte* begin = slot.begin;
    if (begin == nullptr || address < begin || address >= begin + slot.size) continue;
    say(slot.name.data());
    say(" was in use and cannot be read any more: it was cut short or overwritten, or its disk "
        "failed. Put a new file in its place with mv, never in place.\n");
    ::_exit(lost_exit_code);
  }
  ::signal(signal, SIG_DFL);  // and the instruction comes again
}

}  // namespace

void end_on_lost_files(int exit_code) {
  lost_exit_code = exit_code;
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // of a FIFO: at once
  if (fd < 0) fail(path, std::strerror(errno), ErrorCode::not_found);
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd);
    fail(path, "is not a file");
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ > 0) {
    void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapped == MAP_FAILED) {
      const std::string reason = std::strerror(errno);
      ::close(fd);
      fail(path, "cannot be mapped: " + reason);
    }
    data_ = static_cast<const std::byte*>(mapped);
    remember(data_, size_, path.native());
    ::madvise(mapped, size_, MADV_WILLNEED);  // reading goes on while the first tensors are copied
  }
  ::close(fd);
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  forget_file(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::forget(const std::byte* begin, std::size_t bytes) const {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto from = (reinterpret_cast<std::uintptr_t>(begin) + page - 1) / page * page;
  const auto to = (reinterpret_cast<std::uintptr_t>(begin) + bytes) / page * page;
  if (from < to) ::madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
}

}  // namespace quire
