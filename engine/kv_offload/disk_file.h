#pragma once
// A file of blocks: a header, then records of one size, each with its sums. What a server left there
// is of use to the next one if model, layout and hash key are the same; else the file is begun anew.
// It is its owner's alone, and what it is not is never written over.
//
//   header  "QUIREKV1" · record bytes · hash key · SHA-256 of the fingerprint · sum       (4096 bytes)
//   record  mark · stamp · hash · sum of the pages · group · tokens · sum · tokens · pages (n · 4096)

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/kv_cache/block_tier.h"
#include "engine/kv_hash/block_hash.h"

namespace quire {

struct DiskFileOptions {
  std::string path;         // of the file; its folder is made if its parent is there
  std::int64_t bytes = 0;   // the most that it may take
  std::size_t page_bytes = 0;  // most of one block
  int most_tokens = 0;         // of one block
  std::string fingerprint;     // of everything that decides what a block's bytes mean
};

// What a record holds beside its pages.
struct DiskRecord {
  int slot = 0;
  std::uint64_t stamp = 0;  // newer ones have larger ones
  int group = 0;
  BlockHash hash = {};
  std::vector<TokenId> tokens = {};
  std::uint64_t sum = 0;  // of the pages

  BlockContent content() const { return {.group = group, .hash = hash, .tokens = tokens}; }
};

class DiskFile {
 public:
  // Of more blocks nothing is remembered: what is known of one takes some 200 bytes of memory.
  static constexpr int kMostSlots = 1 << 20;

  // Throws Failure, naming the file, where it cannot be made, has no room for one block, is in use by
  // another engine, belongs to another user or is something else.
  explicit DiskFile(const DiskFileOptions& options);
  ~DiskFile();
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  const std::string& path() const { return path_; }
  int num_slots() const { return num_slots_; }
  std::int64_t most_bytes() const { return offset_of(num_slots_); }
  // There were blocks, and they were of another model, layout or version.
  bool was_emptied() const { return was_emptied_; }
  BlockHasher::Key hash_key() const { return key_; }
  // What was there at the start, oldest first. Pages are not looked at before they are read.
  std::vector<DiskRecord> records() const;

  // Any thread, one record at a time each.
  Result<void> write(const DiskRecord& record, std::span<const std::byte> pages) const;
  // The whole record; false where it is not what was written.
  bool read(const DiskRecord& record, std::span<std::byte> pages) const;
  void clear();

 private:
  void take_possession();
  bool read_header(const std::string& fingerprint);
  void begin(const std::string& fingerprint);
  std::optional<DiskRecord> read_record(int slot) const;
  std::int64_t offset_of(int slot) const;

  const std::string path_;
  const int most_tokens_;
  std::int64_t record_bytes_ = 0;
  int num_slots_ = 0;
  int descriptor_ = -1;
  bool was_emptied_ = false;
  BlockHasher::Key key_ = {};
};

}  // namespace quire
