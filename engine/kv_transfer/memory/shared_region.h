#pragma once
// Memory that other processes of this machine may read: what is kept is handed to them as a
// descriptor, over the Unix socket that they ask at. Its size and who may write it are sealed, so
// that neither end can harm the other.

#include <cstddef>
#include <memory>
#include <span>

#include "backend/device.h"
#include "engine/wire/socket_address.h"

namespace quire {

struct SharedBuffer {
  Buffer memory;
  Descriptor descriptor;
};

// Zeroed, on the ledger as the device's memory. Throws Failure.
SharedBuffer make_shared_buffer(std::size_t bytes, MemoryPurpose purpose, MemoryLedger& ledger);

// Another process's, to be read. Its bytes may change under whoever reads them.
class MappedRegion {
 public:
  // Null: it has fewer bytes, or could shrink or be written by others meanwhile.
  static std::shared_ptr<const MappedRegion> map(Descriptor descriptor, std::int64_t bytes);
  ~MappedRegion();
  MappedRegion(const MappedRegion&) = delete;
  MappedRegion& operator=(const MappedRegion&) = delete;

  std::span<const std::byte> bytes() const { return {data_, bytes_}; }

 private:
  MappedRegion(const std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}

  const std::byte* const data_;
  const std::size_t bytes_;
};

}  // namespace quire
