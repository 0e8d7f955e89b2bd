#include "engine/kv_nixl/handshake.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "base/error.h"
#include "engine/kv_events/msgpack.h"
#include "engine/kv_nixl/agent_blob.h"
#include "engine/kv_nixl/msgpack_members.h"

namespace quire {
namespace {

constexpr std::string_view kGetMetadata = "get_meta_msg";
constexpr std::uint64_t kMostTokens = 1 << 20;  // of a block
constexpr std::uint64_t kMostBlocks = std::uint64_t{1} << 31;

[[noreturn]] void fail(const std::string& why) { throw Failure(ErrorCode::invalid_argument, why); }

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

MsgpackValue parsed(std::string_view bytes, std::string_view what) {
  if (bytes.size() > kMaxHandshakeBytes) fail(fmt::format("{} is too long", what));
  auto value = parse_msgpack(bytes);
  if (!value) fail(fmt::format("{}: {}", what, value.error().detail));
  return std::move(*value);
}

std::vector<std::int32_t> memories_of(const std::vector<std::string>& names) {
  std::vector<std::int32_t> memories;
  for (const std::string& name : names) {
    if (name != "DRAM" && name != "VRAM")
      fail(fmt::format("metadata.region_mem_types has \"{}\"; DRAM and VRAM are read", name));
    memories.push_back(
        static_cast<std::int32_t>(name == "VRAM" ? NixlMemory::vram : NixlMemory::dram));
  }
  return memories;
}

void read_geometry(const MsgpackMembers& members, const NixlProfile& profile,
                   NixlMetadata& metadata) {
  constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();
  metadata.base_addresses = members.numbers("kv_caches_base_addr");
  metadata.device = members.number("device_id", 0, kAll);
  metadata.num_blocks = members.number("num_blocks", 1, kMostBlocks);
  metadata.block_lens = members.numbers("block_lens");
  metadata.block_strides =
      profile.has_strides ? members.numbers("block_strides") : metadata.block_lens;
  metadata.layout = members.text("kv_cache_layout");
  metadata.block_size = static_cast<int>(members.number("block_size", 1, kMostTokens));
  metadata.kernel_blocks_per_block =
      static_cast<int>(members.number("physical_blocks_per_logical_kv_block", 1, kMostTokens));
  const auto tokens = static_cast<std::uint64_t>(metadata.block_size) *
                      static_cast<std::uint64_t>(metadata.kernel_blocks_per_block);
  if (tokens > kMostTokens)
    fail("metadata.physical_blocks_per_logical_kv_block makes blocks of more than 2^20 tokens");
  const auto states = members.numbers("ssm_sizes");
  if (states.size() != 2) fail("metadata.ssm_sizes must be two numbers");
  metadata.state_bytes = {states[0], states[1]};
  if (!profile.has_strides) return;
  if (members.has("region_num_blocks"))
    metadata.region_blocks = members.numbers("region_num_blocks");
  if (members.has("region_names")) metadata.region_names = members.texts("region_names");
  if (members.has("region_mem_types"))
    metadata.memories = memories_of(members.texts("region_mem_types"));
  if (members.has("dcp_size"))
    metadata.dcp_size = static_cast<int>(members.number("dcp_size", 1, 1 << 16));
  if (members.has("pcp_size"))
    metadata.pcp_size = static_cast<int>(members.number("pcp_size", 1, 1 << 16));
}

// Every list has one entry per region, and no region leaves the address space.
void check_regions(const NixlMetadata& metadata) {
  const std::size_t regions = metadata.base_addresses.size();
  if (regions == 0) fail("metadata.kv_caches_base_addr is empty");
  const auto check = [&](const char* name, std::size_t size, bool optional) {
    if (size != regions && !(optional && size == 0))
      fail(fmt::format("metadata.{} has {} entries for {} regions", name, size, regions));
  };
  check("block_lens", metadata.block_lens.size(), false);
  check("block_strides", metadata.block_strides.size(), false);
  check("region_num_blocks", metadata.region_blocks.size(), true);
  check("region_names", metadata.region_names.size(), true);
  check("region_mem_types", metadata.memories.size(), true);
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 47;  // of an address space
  for (std::size_t i = 0; i < regions; ++i) {
    const std::uint64_t stride = metadata.block_strides[i];
    if (metadata.block_lens[i] == 0 || stride < metadata.block_lens[i] ||
        stride > kMostBytes / metadata.num_blocks ||
        metadata.base_addresses[i] + stride * metadata.num_blocks < metadata.base_addresses[i])
      fail(fmt::format("metadata.block_lens and block_strides of region {} are out of range", i));
    if (!metadata.region_blocks.empty() && metadata.region_blocks[i] > metadata.num_blocks)
      fail(fmt::format("metadata.region_num_blocks of region {} is above num_blocks", i));
  }
}

void read_extension(const MsgpackValue& value, NixlMetadata& metadata) {
  const MsgpackMembers members(value, "metadata.quire");
  QuireExtension quire;
  quire.geometry = members.binary("geometry", 1 << 20);
  quire.sums_address = members.number("sums_address", 1, std::numeric_limits<std::uint64_t>::max());
  metadata.quire = std::move(quire);
}

void write_numbers(MsgpackWriter& out, const std::vector<std::uint64_t>& numbers) {
  out.array(numbers.size());
  for (const std::uint64_t number : numbers) out.integer(number);
}

// What connectors know since blocks may lie apart.
void write_regions(MsgpackWriter& out, const NixlMetadata& metadata) {
  for (const char* name : {"region_num_blocks", "region_group_ids", "region_names"}) {
    out.text(name);
    out.nil();
  }
  out.text("region_mem_types");
  out.array(metadata.memories.size());
  for (const std::int32_t memory : metadata.memories)
    out.text(memory == static_cast<std::int32_t>(NixlMemory::vram) ? "VRAM" : "DRAM");
  for (const char* name : {"dcp_size", "pcp_size"}) {
    out.text(name);
    out.integer(1);
  }
  out.text("ple_block_len");
  out.nil();
  out.text("region_members");
  out.array(0);
  out.text("packed_member_layouts");
  out.map(0);
}

template <class Message, class Read>
Result<Message> guarded(Read read) try {
  return read();
} catch (const Failure& failure) {
  return failure.error();
}

}  // namespace

std::string encode_metadata_request(NixlRank rank, const NixlProfile& profile) {
  MsgpackWriter out;
  out.array(profile.asks_pipeline_rank ? 3 : 2);
  out.binary(bytes_of(kGetMetadata));
  if (profile.asks_pipeline_rank) out.integer(static_cast<std::uint64_t>(rank.pipeline));
  out.integer(static_cast<std::uint64_t>(rank.tensor));
  return out.take();
}

Result<NixlRank> parse_metadata_request(std::string_view bytes) {
  return guarded<NixlRank>([&] {
    const MsgpackValue value = parsed(bytes, "a request for metadata");
    const MsgpackValue::Array* items = value.as_array();
    if (items == nullptr || items->size() < 2 || items->size() > 3)
      fail("a request for metadata has another form than a list of two or three");
    const std::string* what = items->front().as_binary();
    if (what == nullptr || *what != kGetMetadata) fail("a request is not for metadata");
    NixlRank rank;
    const auto number = [&](std::size_t i) {
      const auto found = (*items)[i].as_unsigned();
      if (!found || *found > 1 << 16) fail("a request for metadata names no rank");
      return static_cast<int>(*found);
    };
    if (items->size() == 3) rank.pipeline = number(1);
    rank.tensor = number(items->size() - 1);
    return rank;
  });
}

std::string encode_handshake(const NixlHandshake& handshake) {
  MsgpackWriter out;
  out.map(2);
  out.text("compatibility_hash");
  out.text(handshake.hash);
  out.text("agent_metadata_bytes");
  out.binary(bytes_of(handshake.metadata));
  return out.take();
}

Result<NixlHandshake> parse_handshake(std::string_view bytes) {
  return guarded<NixlHandshake>([&] {
    const MsgpackValue value = parsed(bytes, "handshake");
    const MsgpackMembers members(value, "handshake");
    return NixlHandshake{members.text("compatibility_hash"),
                         members.binary("agent_metadata_bytes", kMaxHandshakeBytes)};
  });
}

std::string encode_clock(double seconds) {
  MsgpackWriter out;
  out.real(seconds);
  return out.take();
}

std::string encode_metadata(const NixlMetadata& metadata, const NixlProfile& profile) {
  MsgpackWriter out;
  out.map((profile.has_strides ? 21U : 11U) + (metadata.quire ? 1U : 0U));
  out.text("engine_id");
  out.text(metadata.engine);
  out.text("agent_metadata");
  out.binary(bytes_of(metadata.agent));
  out.text("kv_caches_base_addr");
  write_numbers(out, metadata.base_addresses);
  out.text("device_id");
  out.integer(metadata.device);
  out.text("num_blocks");
  out.integer(metadata.num_blocks);
  out.text("block_lens");
  write_numbers(out, metadata.block_lens);
  out.text("kv_cache_layout");
  out.text(metadata.layout);
  out.text("block_size");
  out.integer(static_cast<std::uint64_t>(metadata.block_size));
  out.text("ssm_sizes");
  out.array(2);
  for (const std::uint64_t bytes : metadata.state_bytes) out.integer(bytes);
  out.text("attn_backend_name");
  out.text(metadata.attention_backend);
  out.text("physical_blocks_per_logical_kv_block");
  out.integer(static_cast<std::uint64_t>(metadata.kernel_blocks_per_block));
  if (profile.has_strides) {
    out.text("block_strides");
    write_numbers(out, metadata.block_strides);
    write_regions(out, metadata);
  }
  if (metadata.quire) {
    out.text("quire");
    out.map(2);
    out.text("geometry");
    out.binary(bytes_of(metadata.quire->geometry));
    out.text("sums_address");
    out.integer(metadata.quire->sums_address);
  }
  return out.take();
}

Result<NixlMetadata> parse_metadata(std::string_view bytes, const NixlProfile& profile) {
  return guarded<NixlMetadata>([&] {
    const MsgpackValue value = parsed(bytes, "metadata");
    const MsgpackMembers members(value, "metadata");
    NixlMetadata metadata;
    metadata.engine = members.text("engine_id");
    metadata.agent = members.binary("agent_metadata", kMaxAgentBlobBytes);
    metadata.attention_backend = members.text("attn_backend_name");
    read_geometry(members, profile, metadata);
    check_regions(metadata);
    if (const MsgpackValue* quire = value.find("quire")) read_extension(*quire, metadata);
    return metadata;
  });
}

}  // namespace quire
