#include "engine/kv_offload/disk_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "engine/kv_hash/event_hash.h"
#include "engine/kv_transfer/content/checksum.h"

namespace quire {
namespace {

constexpr std::int64_t kSector = 4096;
constexpr std::array<char, 8> kMark = {'Q', 'U', 'I', 'R', 'E', 'K', 'V', '1'};
constexpr std::uint64_t kRecordMark = 0x6b636f6c62696b71;  // "qkiblock"

struct FileHeader {
  std::array<char, 8> mark = kMark;
  std::int64_t record_bytes = 0;
  std::uint64_t key_low = 0, key_high = 0;
  Sha256 fingerprint = {};
  std::uint64_t sum = 0;  // of what stands before it
};

struct RecordHeader {
  std::uint64_t mark = kRecordMark;
  std::uint64_t stamp = 0;
  std::uint64_t hash_low = 0, hash_high = 0;
  std::uint64_t pages_sum = 0;
  std::int32_t group = 0;
  std::int32_t num_tokens = 0;
  std::uint64_t sum = 0;  // of what stands before it, then of the tokens
};

template <class Header>
std::uint64_t sum_of(const Header& header) {
  return kv_checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, sum)));
}

std::uint64_t sum_of(const RecordHeader& header, std::span<const TokenId> tokens) {
  return kv_checksum(std::as_bytes(tokens), sum_of<RecordHeader>(header));
}

RecordHeader header_of(const DiskRecord& record) {
  RecordHeader header;
  header.stamp = record.stamp;
  header.hash_low = record.hash.low;
  header.hash_high = record.hash.high;
  header.pages_sum = record.sum;
  header.group = record.group;
  header.num_tokens = static_cast<std::int32_t>(record.tokens.size());
  header.sum = sum_of(header, record.tokens);
  return header;
}

Sha256 digest(const std::string& text) {
  return sha256({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

bool read_all(int descriptor, std::span<std::byte> out, std::int64_t offset) {
  while (!out.empty()) {
    const ssize_t count = ::pread(descriptor, out.data(), out.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    out = out.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
  return true;
}

// 0, or errno.
int write_all(int descriptor, std::span<const std::byte> bytes, std::int64_t offset) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count == 0 ? ENOSPC : errno;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
  return 0;
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Failure(Error{ErrorCode::unavailable,
                      fmt::format("KvOffloadConfig::path: {} {}", path, why),
                      "KvOffloadConfig::path"});
}

std::string text_of(int error) { return std::strerror(error); }

}  // namespace

DiskFile::DiskFile(const DiskFileOptions& options)
    : path_(options.path), most_tokens_(options.most_tokens) {
  const auto raw = static_cast<std::int64_t>(sizeof(RecordHeader) + options.page_bytes) +
                   std::int64_t{most_tokens_} * static_cast<std::int64_t>(sizeof(TokenId));
  record_bytes_ = (raw + kSector - 1) / kSector * kSector;
  num_slots_ = static_cast<int>(
      std::min<std::int64_t>((options.bytes - kSector) / record_bytes_, kMostSlots));
  if (num_slots_ < 1)
    refuse(path_, fmt::format("may have {} bytes, of which a block takes {}", options.bytes,
                              record_bytes_ + kSector));
  std::error_code ignored;  // opening says what is wrong
  std::filesystem::create_directory(std::filesystem::path(path_).parent_path(), ignored);
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (descriptor_ < 0)
    refuse(path_, errno == ELOOP ? "is a symbolic link, which is not followed"
                                 : "cannot be opened: " + text_of(errno));
  try {
    take_possession();
    if (!read_header(options.fingerprint)) begin(options.fingerprint);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

DiskFile::~DiskFile() { ::close(descriptor_); }

// Who could read it could read prompts, and who could write it could answer them.
void DiskFile::take_possession() {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) refuse(path_, "cannot be read: " + text_of(errno));
  if (!S_ISREG(status.st_mode)) refuse(path_, "is no regular file");
  if (status.st_uid != ::geteuid())
    refuse(path_, fmt::format("belongs to user {}, not to {}, who runs this server", status.st_uid,
                              ::geteuid()));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0)
    refuse(path_, errno == EWOULDBLOCK ? "is in use by another engine; give each its own folder"
                                       : "cannot be locked: " + text_of(errno));
  std::array<char, 8> mark = kMark;
  const auto there = std::min<std::size_t>(static_cast<std::size_t>(status.st_size), mark.size());
  read_all(descriptor_, std::as_writable_bytes(std::span(mark).first(there)), 0);
  if (mark != kMark) refuse(path_, "holds something that is not Quire's; move it away");
  was_emptied_ = status.st_size > kSector;
  if (::fchmod(descriptor_, 0600) != 0)
    refuse(path_, "cannot be made its owner's alone: " + text_of(errno));
}

std::int64_t DiskFile::offset_of(int slot) const { return kSector + slot * record_bytes_; }

bool DiskFile::read_header(const std::string& fingerprint) {
  FileHeader header;
  if (!read_all(descriptor_, std::as_writable_bytes(std::span(&header, 1)), 0)) return false;
  if (header.mark != kMark || header.sum != sum_of(header)) return false;
  if (header.record_bytes != record_bytes_ || header.fingerprint != digest(fingerprint))
    return false;
  key_ = {header.key_low, header.key_high};
  was_emptied_ = false;
  struct stat status {};
  if (::fstat(descriptor_, &status) == 0 && status.st_size > most_bytes() &&
      ::ftruncate(descriptor_, most_bytes()) != 0)
    refuse(path_, "cannot be cut to its new size: " + text_of(errno));
  return true;
}

void DiskFile::begin(const std::string& fingerprint) {
  key_ = BlockHasher::random_key();
  FileHeader header;
  header.record_bytes = record_bytes_;
  header.key_low = key_.low;
  header.key_high = key_.high;
  header.fingerprint = digest(fingerprint);
  header.sum = sum_of(header);
  if (::ftruncate(descriptor_, 0) != 0) refuse(path_, "cannot be emptied: " + text_of(errno));
  const int error = write_all(descriptor_, std::as_bytes(std::span(&header, 1)), 0);
  if (error != 0) refuse(path_, "cannot be written: " + text_of(error));
}

std::optional<DiskRecord> DiskFile::read_record(int slot) const {
  RecordHeader header;
  const std::int64_t offset = offset_of(slot);
  if (!read_all(descriptor_, std::as_writable_bytes(std::span(&header, 1)), offset)) return {};
  if (header.mark != kRecordMark || header.num_tokens < 1 || header.num_tokens > most_tokens_ ||
      header.group < 0)
    return {};
  DiskRecord record{.slot = slot,
                    .stamp = header.stamp,
                    .group = header.group,
                    .hash = {header.hash_low, header.hash_high},
                    .tokens = {},
                    .sum = header.pages_sum};
  record.tokens.resize(static_cast<std::size_t>(header.num_tokens));
  const auto tokens = std::as_writable_bytes(std::span(record.tokens));
  if (!read_all(descriptor_, tokens, offset + static_cast<std::int64_t>(sizeof header))) return {};
  if (header.sum != sum_of(header, record.tokens)) return {};
  return record;
}

std::vector<DiskRecord> DiskFile::records() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) return {};
  const std::int64_t end =
      std::min<std::int64_t>(num_slots_, (status.st_size - kSector + record_bytes_ - 1) / record_bytes_);
  std::vector<DiskRecord> records;
  for (int slot = 0; slot < end; ++slot)
    if (auto record = read_record(slot)) records.push_back(std::move(*record));
  std::ranges::sort(records, {}, &DiskRecord::stamp);
  return records;
}

// Of what an interrupted write leaves, the sums disagree.
Result<void> DiskFile::write(const DiskRecord& record, std::span<const std::byte> pages) const {
  const RecordHeader header = header_of(record);
  std::vector<std::byte> front(sizeof header + std::span(record.tokens).size_bytes());
  std::memcpy(front.data(), &header, sizeof header);
  std::memcpy(front.data() + sizeof header, record.tokens.data(),
              std::span(record.tokens).size_bytes());
  const std::int64_t offset = offset_of(record.slot);
  int error = write_all(descriptor_, front, offset);
  const std::int64_t behind = offset + static_cast<std::int64_t>(front.size());
  if (error == 0) error = write_all(descriptor_, pages, behind);
  if (error == 0) return {};
  return Error{ErrorCode::unavailable, path_ + ": " + text_of(error), {}};
}

bool DiskFile::read(const DiskRecord& record, std::span<std::byte> pages) const {
  const auto found = read_record(record.slot);
  if (!found || found->group != record.group || found->hash != record.hash ||
      found->tokens != record.tokens || found->sum != record.sum)
    return false;
  const std::int64_t behind = offset_of(record.slot) +
                              static_cast<std::int64_t>(sizeof(RecordHeader)) +
                              static_cast<std::int64_t>(std::span(record.tokens).size_bytes());
  return read_all(descriptor_, pages, behind) && kv_checksum(pages) == record.sum;
}

void DiskFile::clear() { [[maybe_unused]] const int ignored = ::ftruncate(descriptor_, kSector); }

}  // namespace quire
