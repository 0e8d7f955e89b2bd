#include "engine/kv_events/encoding.h"

#include "engine/kv_events/msgpack.h"
#include "engine/kv_hash/event_hash.h"

namespace quire {
namespace {

// Where the blocks are; vLLM has other names for offloaded ones only.
constexpr std::string_view kMedium = "GPU";

class Encoder {
 public:
  explicit Encoder(const KvEventFormat& format) : format_(format) {}

  void batch(double seconds, std::span<const KvEvent> events) {
    out_.array(3);
    out_.real(seconds);
    out_.array(events.size());
    for (const KvEvent& event : events)
      std::visit([this](const auto& each) { write(each); }, event);
    out_.integer(static_cast<std::uint64_t>(format_.data_parallel_rank));
  }

  std::string take() { return out_.take(); }

 private:
  void write(const BlockStored& event) {
    out_.array(12);
    out_.text("BlockStored");
    out_.array(event.hashes.size());
    for (const EventHash& hash : event.hashes) write(hash);
    event.parent ? write(*event.parent) : out_.nil();
    out_.array(event.token_ids.size());
    for (const TokenId token : event.token_ids) out_.signed_integer(token);
    out_.integer(static_cast<std::uint64_t>(event.block_size));
    event.lora_id ? out_.signed_integer(*event.lora_id) : out_.nil();
    out_.text(kMedium);
    event.lora_name.empty() ? out_.nil() : out_.text(event.lora_name);
    out_.array(event.extra_keys.size());
    for (const auto& keys : event.extra_keys) write(keys);
    out_.integer(static_cast<std::uint64_t>(event.group));
    write_group(static_cast<std::size_t>(event.group));
  }

  void write(const BlockRemoved& event) {
    out_.array(4);
    out_.text("BlockRemoved");
    out_.array(1);
    write(event.hash);
    out_.text(kMedium);
    out_.integer(static_cast<std::uint64_t>(event.group));
  }

  void write(const AllBlocksCleared&) {
    out_.array(1);
    out_.text("AllBlocksCleared");
  }

  // A coarse block's hash is its fine blocks' hashes one after the other.
  void write(const EventHash& hash) {
    std::vector<std::uint8_t> bytes;
    for (const Sha256& fine : hash) bytes.insert(bytes.end(), fine.begin(), fine.end());
    if (!format_.int_hashes) return out_.binary(bytes);
    out_.integer(event_int(bytes));
  }

  void write(const std::vector<ExtraKey>& keys) {
    if (keys.empty()) return out_.nil();
    out_.array(keys.size());
    for (const ExtraKey& key : keys) {
      if (const auto* text = std::get_if<std::string>(&key)) {
        out_.text(*text);
        continue;
      }
      const ItemKey& item = std::get<ItemKey>(key);
      out_.array(2);
      out_.text(item.identifier);
      out_.signed_integer(item.offset);
    }
  }

  void write_group(std::size_t group) {
    if (group >= format_.groups.size()) {
      out_.nil();
      return out_.nil();
    }
    const KvEventGroup& about = format_.groups[group];
    out_.text(about.kind);
    about.sliding_window > 0 ? out_.integer(static_cast<std::uint64_t>(about.sliding_window))
                             : out_.nil();
  }

  const KvEventFormat& format_;
  MsgpackWriter out_;
};

}  // namespace

std::vector<KvEventGroup> event_groups(const KvPlan& plan) {
  std::vector<KvEventGroup> groups;
  for (const KvGroup& group : plan.groups())
    groups.push_back({std::string(group.mixed_kinds ? "unknown" : kind_name(group.spec.kind)),
                      group.spec.sliding_window});
  return groups;
}

std::string encode_kv_events(double seconds, std::span<const KvEvent> events,
                             const KvEventFormat& format) {
  Encoder encoder(format);
  encoder.batch(seconds, events);
  return encoder.take();
}

}  // namespace quire
