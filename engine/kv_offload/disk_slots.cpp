#include "engine/kv_offload/disk_slots.h"

#include <utility>

#include "base/log.h"

namespace quire {

DiskSlots::DiskSlots(const DiskFileOptions& options)
    : file_(options),
      table_(file_.num_slots(), options.most_tokens),
      stamps_(static_cast<std::size_t>(file_.num_slots())),
      is_taken_(stamps_.size()),
      writer_(file_) {
  for (const DiskRecord& record : file_.records()) {
    table_.put(record.slot, record.content(), record.sum);
    stamps_[static_cast<std::size_t>(record.slot)] = record.stamp;
    next_stamp_ = record.stamp + 1;
  }
  if (file_.was_emptied())
    log::warn("kv_offload.begun_anew",
              {{"path", file_.path()},
               {"because", "its blocks are of another model, dtype, device, layout or version"}});
  log::info("kv_offload.file", {{"path", file_.path()},
                                {"blocks", table_.num_slots()},
                                {"bytes", file_.most_bytes()},
                                {"found", table_.num_held()}});
}

void DiskSlots::touch(const BlockContent& content) {
  if (const int slot = table_.find(content); slot != SlotTable::kNone) table_.touch(slot);
}

bool DiskSlots::write(int host_slot, const BlockContent& content,
                      std::span<const std::byte> pages, std::uint64_t sum) {
  int slot = table_.oldest();
  while (slot != SlotTable::kNone && is_taken_[static_cast<std::size_t>(slot)] != 0)
    slot = table_.after(slot);
  if (slot == SlotTable::kNone || is_full_) return false;
  table_.forget(slot);
  is_taken_[static_cast<std::size_t>(slot)] = 1;
  const std::uint64_t stamp = stamps_[static_cast<std::size_t>(slot)] = next_stamp_++;
  writer_.add({.record = {.slot = slot,
                          .stamp = stamp,
                          .group = content.group,
                          .hash = content.hash,
                          .tokens = {content.tokens.begin(), content.tokens.end()},
                          .sum = sum},
               .host_slot = host_slot,
               .pages = pages});
  return true;
}

std::vector<DiskSlots::Written> DiskSlots::take_written() {
  std::vector<Written> written;
  for (DiskWriter::Job& job : writer_.take_done()) {
    is_taken_[static_cast<std::size_t>(job.record.slot)] = 0;
    Written& one = written.emplace_back();
    one.host_slot = job.host_slot;
    if (job.result) {
      one.bytes = static_cast<std::int64_t>(job.pages.size());
      table_.put(job.record.slot, job.record.content(), job.record.sum);
      continue;
    }
    table_.retire(job.record.slot);
    if (!std::exchange(is_full_, true))
      log::warn("kv_offload.disk_full", {{"because", job.result.error().detail},
                                         {"blocks", table_.num_held()},
                                         {"then", "nothing more is written"}});
  }
  return written;
}

std::optional<std::uint64_t> DiskSlots::read(const BlockContent& content,
                                             std::span<std::byte> pages) {
  const int slot = table_.find(content);
  if (slot == SlotTable::kNone) return {};
  const DiskRecord record{.slot = slot,
                          .stamp = stamps_[static_cast<std::size_t>(slot)],
                          .group = content.group,
                          .hash = content.hash,
                          .tokens = {content.tokens.begin(), content.tokens.end()},
                          .sum = table_.sum_of(slot)};
  if (file_.read(record, pages)) {
    table_.touch(slot);
    return record.sum;
  }
  table_.forget(slot);
  return {};
}

void DiskSlots::clear() {
  table_.clear();
  file_.clear();
  is_full_ = false;
}

}  // namespace quire
