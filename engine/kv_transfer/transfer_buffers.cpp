#include "engine/kv_transfer/transfer_buffers.h"

#include <algorithm>

#include "engine/kv_transfer/geometry.h"
#include "engine/kv_transfer/shared_region.h"

namespace quire {
namespace {

constexpr std::int64_t kMostDefaultBytes = std::int64_t{1} << 30;
constexpr std::int64_t kForWindows = 1 << 20;  // what blocks keep beside a window

}  // namespace

std::int64_t longest_prefill_bytes(std::span<const LayerKvSpec> layers,
                                   std::int64_t max_model_len) {
  std::int64_t bytes = 0;
  for (const LayerKvSpec& layer : layers) {
    const KvLayerGeometry geometry = layer_geometry(layer, 1);
    const std::int64_t rows = geometry.is_state() ? 1
                              : geometry.window > 0
                                  ? std::min<std::int64_t>(geometry.window, max_model_len)
                                  : max_model_len;
    bytes += rows * geometry.planes * geometry.row_bytes;
  }
  return bytes;
}

TransferBuffers make_transfer_buffers(const KvTransferConfig& config, std::int64_t longest_bytes,
                                      Device& device) {
  const std::int64_t size = config.buffer_bytes > 0
                                ? config.buffer_bytes
                                : std::min(2 * longest_bytes + kForWindows, kMostDefaultBytes);
  // Where whole blocks land and become rows, copies need room of their own; over NIXL also where
  // rows become blocks.
  const auto make = [&](bool wanted, bool copies) {
    if (!wanted) return Buffer();
    const std::int64_t times = copies && config.buffer_bytes == 0 ? 2 : 1;
    const auto bytes = static_cast<std::size_t>(size * times);
    return device.is_host_memory() ? device.allocate_zeroed(bytes, MemoryPurpose::kv_transfer)
                                   : device.allocate_host(bytes, MemoryPurpose::kv_transfer);
  };
  TransferBuffers buffers;
  // Where whoever fetches is on this machine, he reads the memory itself.
  const bool is_near = config.listen.starts_with("unix:") && !config.uses_nixl();
  if (config.prefills() && is_near && device.is_host_memory()) {
    SharedBuffer shared = make_shared_buffer(static_cast<std::size_t>(size),
                                             MemoryPurpose::kv_transfer, device.ledger());
    buffers.kept = std::move(shared.memory);
    buffers.kept_descriptor = std::move(shared.descriptor);
  } else {
    buffers.kept = make(config.prefills(), config.uses_nixl());
  }
  buffers.arriving = make(config.decodes(), config.uses_nixl() || config.uses_mooncake());
  return buffers;
}

}  // namespace quire
