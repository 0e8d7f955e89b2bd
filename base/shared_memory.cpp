#include "base/shared_memory.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

constexpr int kSpins = 2000;  // some tens of microseconds: the other side is usually that near
constexpr timespec kGlance{0, 100'000'000};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

Failure failure(const char* what) {
  return Failure(ErrorCode::internal, std::string(what) + ": " + std::strerror(errno));
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// A futex is the address of a plain number.
long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout,
                   nullptr, 0);
}

}  // namespace

SharedMemory SharedMemory::create(const char* what, std::size_t bytes) {
  const int descriptor = ::memfd_create(what, MFD_CLOEXEC);
  if (descriptor < 0) throw failure("memfd_create");
  if (::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    const Failure error = failure("the size of shared memory");
    ::close(descriptor);
    throw error;
  }
  return {descriptor, bytes};
}

SharedMemory SharedMemory::open(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw failure("shared memory");
  return {descriptor, static_cast<std::size_t>(status.st_size)};
}

SharedMemory::SharedMemory(int descriptor, std::size_t bytes)
    : bytes_(bytes), descriptor_(descriptor) {
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) {
    const Failure error = failure("shared memory");
    ::close(descriptor);
    throw error;
  }
  data_ = static_cast<std::byte*>(data);
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

void SharedMemory::swap(SharedMemory& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(descriptor_, other.descriptor_);
}

void SharedFate::fail(std::string_view why) {
  std::uint32_t fresh = 0;
  if (!state_.compare_exchange_strong(fresh, kBeingWritten)) return;
  const std::size_t length = std::min(why.size(), sizeof words_ - 1);
  std::memcpy(words_, why.data(), length);
  words_[length] = 0;
  state_.store(kFailed, std::memory_order_release);
}

void SharedFate::check() const {
  if (has_failed()) throw Failure(ErrorCode::internal, words_);
}

// Either the raiser sees the sleeper's mark, or the sleeper the new value: both are sequentially
// consistent.
void SharedCount::raise() {
  value_.fetch_add(1);
  if (sleepers_.load() > 0) futex(value_, FUTEX_WAKE, INT_MAX, nullptr);
}

void SharedCount::wait_for(std::uint32_t target, const SharedFate* fate) {
  for (int i = 0; i < kSpins; ++i) {
    if (has_come_to(target)) return;
    pause();
  }
  while (true) {
    sleepers_.fetch_add(1);
    const std::uint32_t seen = value_.load();
    const bool come = static_cast<std::int32_t>(seen - target) >= 0;
    if (!come) futex(value_, FUTEX_WAIT, seen, fate == nullptr ? nullptr : &kGlance);
    sleepers_.fetch_sub(1);
    if (come || has_come_to(target)) return;
    if (fate != nullptr) fate->check();
  }
}

}  // namespace quire
