#include "engine/kv_transfer/transfer_buffers.h"

#include "engine/kv_transfer/memory/shared_region.h"

namespace quire {

TransferBuffers make_transfer_buffers(const KvTransferConfig& config, const TransferSizes& sizes,
                                      Device& device) {
  const auto make = [&](std::int64_t size) {
    if (size == 0) return Buffer();
    const auto bytes = static_cast<std::size_t>(size);
    return device.is_host_memory() ? device.allocate_zeroed(bytes, MemoryPurpose::kv_transfer)
                                   : device.allocate_host(bytes, MemoryPurpose::kv_transfer);
  };
  TransferBuffers buffers;
  // A server on this machine that fetches reads the memory itself.
  const bool is_near = config.listen.starts_with("unix:") && !config.uses_nixl();
  if (config.prefills() && is_near && device.is_host_memory()) {
    SharedBuffer shared = make_shared_buffer(static_cast<std::size_t>(sizes.kept),
                                             MemoryPurpose::kv_transfer, device.ledger());
    buffers.kept = std::move(shared.memory);
    buffers.kept_descriptor = std::move(shared.descriptor);
  } else {
    buffers.kept = make(sizes.kept);
  }
  buffers.arriving = make(sizes.arriving);
  return buffers;
}

}  // namespace quire
