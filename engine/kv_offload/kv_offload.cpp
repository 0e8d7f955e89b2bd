#include "engine/kv_offload/kv_offload.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/kv_offload/divided_block_pages.h"

namespace quire {
namespace {

constexpr int kMostWritten = 16;  // of the oldest slots, on their way to the disk at a time

std::unique_ptr<DiskSlots> open_disk(const OffloadSetup& setup) {
  const KvOffloadConfig& config = setup.config;
  if (config.path.empty()) return nullptr;
  DiskFileOptions options;
  options.path =
      (std::filesystem::path(config.path) / fmt::format("engine-{}.kv", setup.engine.value))
          .string();
  options.bytes = config.path_bytes > 0 ? config.path_bytes
                                        : KvOffloadConfig::kPathShare * config.host_bytes;
  options.page_bytes = setup.slot_bytes;
  options.most_tokens = setup.most_tokens;
  options.fingerprint = setup.fingerprint;
  return std::make_unique<DiskSlots>(options);
}

std::unique_ptr<BlockPages> make_pages(Device& device, const OffloadSetup& setup) {
  if (setup.ranks == nullptr) return std::make_unique<BlockPages>(device, setup.layers);
  return std::make_unique<DividedBlockPages>(device, setup.layers, *setup.ranks);
}

}  // namespace

Buffer offload_memory(const KvOffloadConfig& config, std::size_t slot_bytes, Device& device) {
  if (!config.is_on()) return {};
  const auto block = static_cast<std::int64_t>(slot_bytes);
  if (block > config.host_bytes)
    throw Failure(Error{ErrorCode::invalid_argument,
                        fmt::format("KvOffloadConfig::host_bytes {} holds no block of this model, "
                                    "which has {} bytes",
                                    config.host_bytes, block),
                        "KvOffloadConfig::host_bytes"});
  const auto bytes = static_cast<std::size_t>(
      block == 0 ? config.host_bytes : config.host_bytes / block * block);
  return device.is_host_memory() ? device.allocate_zeroed(bytes, MemoryPurpose::kv_offload)
                                 : device.allocate_host(bytes, MemoryPurpose::kv_offload);
}

KvOffload::KvOffload(Device& device, OffloadSetup setup)
    : pages_(make_pages(device, setup)),
      host_(*pages_, std::move(setup.memory), setup.slot_bytes, setup.most_tokens),
      disk_(open_disk(setup)) {}

KvOffload::~KvOffload() = default;

std::optional<BlockHasher::Key> KvOffload::hash_key() const {
  return disk_ == nullptr ? std::nullopt : std::optional(disk_->hash_key());
}

void KvOffload::keep(BlockId block, const BlockContent& content) {
  take_written();
  SlotTable& table = host_.table();
  if (const int slot = table.find(content); slot != SlotTable::kNone) return table.touch(slot);
  const int slot = take_slot();
  if (slot == SlotTable::kNone) {
    ++stats_.dropped;
    return;
  }
  host_.fill(slot, block, content);
  stats_.saved_bytes += static_cast<std::int64_t>(pages_->bytes(content.group));
  write_behind();
}

// The oldest that is not being written.
int KvOffload::take_slot() {
  SlotTable& table = host_.table();
  int slot = table.oldest();
  while (slot != SlotTable::kNone && host_.is_pinned(slot)) slot = table.after(slot);
  if (slot == SlotTable::kNone || !table.is_held(slot)) return slot;
  if (must_be_written(slot)) ++stats_.dropped;
  table.forget(slot);
  return slot;
}

bool KvOffload::must_be_written(int slot) const {
  return disk_ != nullptr && !disk_->holds(host_.table().content_of(slot));
}

// The next ones to go, before they have to: so the engine waits for no disk.
void KvOffload::write_behind() {
  if (disk_ == nullptr || disk_->is_full()) return;
  SlotTable& table = host_.table();
  int left = std::clamp(table.num_slots() / 2, 1, kMostWritten);
  for (int slot = table.oldest(); slot != SlotTable::kNone && left > 0;
       slot = table.after(slot), --left) {
    if (!table.is_held(slot)) return;  // there is room
    if (host_.is_pinned(slot) || !must_be_written(slot)) continue;
    if (!host_.is_settled(slot)) return;
    const BlockContent content = table.content_of(slot);
    if (!disk_->write(slot, content, host_.bytes(slot, content.group), table.sum_of(slot))) return;
    host_.pin(slot, true);
  }
}

void KvOffload::take_written() {
  if (disk_ == nullptr) return;
  for (const DiskSlots::Written& one : disk_->take_written()) {
    host_.pin(one.host_slot, false);
    stats_.written_bytes += one.bytes;
  }
}

bool KvOffload::holds(const BlockContent& content) {
  SlotTable& table = host_.table();
  if (const int slot = table.find(content); slot != SlotTable::kNone) {
    table.touch(slot);
    return true;
  }
  if (disk_ == nullptr || !disk_->holds(content)) return false;
  disk_->touch(content);
  return true;
}

bool KvOffload::restore(const BlockContent& content, BlockId block) {
  take_written();
  SlotTable& table = host_.table();
  const int slot = table.find(content);
  if (slot == SlotTable::kNone) return restore_from_disk(content, block);
  if (host_.copy_back(slot, block)) {
    table.touch(slot);
    stats_.restored_bytes += static_cast<std::int64_t>(pages_->bytes(content.group));
    return true;
  }
  ++stats_.damaged;
  log::warn("kv_offload.damaged", {{"where", "memory"}, {"then", "recompute"}});
  if (!host_.is_pinned(slot)) table.forget(slot);
  return false;
}

// By way of a slot, where it stays.
bool KvOffload::restore_from_disk(const BlockContent& content, BlockId block) {
  if (disk_ == nullptr || !disk_->holds(content)) return false;
  const int slot = take_slot();
  if (slot == SlotTable::kNone) return false;
  host_.wait_for_device();
  const auto bytes = host_.bytes(slot, content.group);
  const auto sum = disk_->read(content, bytes);
  if (!sum) {
    ++stats_.damaged;
    log::warn("kv_offload.damaged", {{"where", "disk"}, {"then", "recompute"}});
    return false;
  }
  host_.table().put(slot, content, *sum);
  pages_->write(content.group, block, bytes.data());
  stats_.read_bytes += static_cast<std::int64_t>(bytes.size());
  stats_.restored_bytes += static_cast<std::int64_t>(bytes.size());
  write_behind();
  return true;
}

void KvOffload::finish_writing() {
  if (disk_ == nullptr) return;
  disk_->finish();
  take_written();
}

void KvOffload::clear() {
  finish_writing();
  host_.table().clear();
  if (disk_ != nullptr) disk_->clear();
}

KvOffloadStats KvOffload::stats() const {
  KvOffloadStats stats = stats_;
  const auto slot_bytes = static_cast<std::int64_t>(host_.slot_bytes());
  stats.host_bytes = host_.table().num_held() * slot_bytes;
  if (disk_ != nullptr) stats.disk_bytes = disk_->table().num_held() * slot_bytes;
  return stats;
}

}  // namespace quire
