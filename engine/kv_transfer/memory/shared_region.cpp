#include "engine/kv_transfer/memory/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace quire {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

[[noreturn]] void fail(const char* what, std::size_t bytes) {
  throw Failure(ErrorCode::unavailable, std::string("memory of ") + std::to_string(bytes) +
                                            " bytes to share: " + what + ": " +
                                            std::strerror(errno));
}

}  // namespace

SharedBuffer make_shared_buffer(std::size_t bytes, MemoryPurpose purpose, MemoryLedger& ledger) {
  SharedBuffer shared;
  shared.descriptor.reset(::memfd_create("quire-kv", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!shared.descriptor) fail("memfd_create", bytes);
  const int fd = shared.descriptor.get();
  // Its pages are taken now: later a missing one would be a signal, not an error.
  if (errno = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes)); errno != 0)
    fail("posix_fallocate", bytes);
  void* const data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (data == MAP_FAILED) fail("mmap", bytes);
  Buffer memory(data, bytes, [](void* at, std::size_t size) { ::munmap(at, size); });
  // This mapping stays writable; no other will be.
  if (::fcntl(fd, F_ADD_SEALS, kSizeSeals | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0)
    fail("sealing", bytes);
  shared.memory = Buffer(std::move(memory), ledger, purpose, MemoryKind::device);
  return shared;
}

std::shared_ptr<const MappedRegion> MappedRegion::map(Descriptor descriptor, std::int64_t bytes) {
  struct stat status {};
  const int seals = ::fcntl(descriptor.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return nullptr;
  if (bytes < 1 || ::fstat(descriptor.get(), &status) != 0 || status.st_size < bytes)
    return nullptr;
  const auto size = static_cast<std::size_t>(bytes);
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor.get(), 0);
  if (data == MAP_FAILED) return nullptr;
  return std::shared_ptr<const MappedRegion>(
      new MappedRegion(static_cast<const std::byte*>(data), size));
}

MappedRegion::~MappedRegion() { ::munmap(const_cast<std::byte*>(data_), bytes_); }

}  // namespace quire
