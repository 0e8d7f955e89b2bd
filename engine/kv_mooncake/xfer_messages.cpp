#include "engine/kv_mooncake/xfer_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "engine/kv_events/msgpack.h"
#include "engine/kv_nixl/msgpack_value.h"

namespace quire {
namespace {

constexpr std::size_t kMostRegions = 4096, kMostWanted = 1024, kMostGroups = 64;
constexpr std::size_t kMostTextBytes = 4096, kMostGeometryBytes = 1 << 20;
constexpr std::uint64_t kMostRanks = 1024;
constexpr std::uint64_t kMostAddress = std::uint64_t{1} << 63;

[[noreturn]] void fail(const std::string& why) { throw Failure(ErrorCode::invalid_argument, why); }

// What is left out has a value that both sides know; so has null.
const MsgpackValue* member(const MsgpackValue& map, std::string_view name) {
  const MsgpackValue* found = map.find(name);
  return found == nullptr || found->is_nil() ? nullptr : found;
}

const MsgpackValue& need(const MsgpackValue& map, std::string_view name) {
  const MsgpackValue* found = member(map, name);
  if (found == nullptr) fail(fmt::format("{} is missing", name));
  return *found;
}

std::uint64_t number(const MsgpackValue& value, std::string_view name, std::uint64_t most) {
  const auto read = value.as_unsigned();
  if (!read || *read > most) fail(fmt::format("{} must be a number up to {}", name, most));
  return *read;
}

std::string text(const MsgpackValue& value, std::string_view name) {
  const std::string* read = value.as_text();
  if (read == nullptr || read->size() > kMostTextBytes)
    fail(fmt::format("{} must be a text of at most {} bytes", name, kMostTextBytes));
  return *read;
}

const MsgpackValue::Array& list(const MsgpackValue& value, std::string_view name,
                                std::size_t most) {
  const MsgpackValue::Array* read = value.as_array();
  if (read == nullptr || read->size() > most)
    fail(fmt::format("{} must be a list of at most {} items", name, most));
  return *read;
}

std::vector<std::uint64_t> numbers(const MsgpackValue& map, std::string_view name,
                                   std::uint64_t most) {
  std::vector<std::uint64_t> all;
  if (const MsgpackValue* found = member(map, name))
    for (const MsgpackValue& item : list(*found, name, kMostRegions))
      all.push_back(number(item, name, most));
  return all;
}

std::vector<std::string> texts(const MsgpackValue& map, std::string_view name) {
  std::vector<std::string> all;
  if (const MsgpackValue* found = member(map, name))
    for (const MsgpackValue& item : list(*found, name, kMostRegions))
      all.push_back(text(item, name));
  return all;
}

MooncakeWanted read_wanted(const MsgpackValue& id, const MsgpackValue& value, std::size_t most) {
  constexpr std::string_view kName = "req_blocks";
  const auto& pair = list(value, kName, 2);
  if (pair.size() != 2) fail("req_blocks must have pairs");
  MooncakeWanted wanted{.id = text(id, kName), .transfer = text(pair[0], kName)};
  std::size_t count = 0;
  for (const MsgpackValue& group : list(pair[1], kName, kMostGroups)) {
    auto& ids = wanted.blocks.emplace_back();
    const auto& blocks = list(group, kName, kMostAskedBlocks);
    count += blocks.size();
    if (count > most) fail(fmt::format("req_blocks has more than {} blocks", kMostAskedBlocks));
    for (const MsgpackValue& block : blocks)
      ids.push_back(static_cast<std::int64_t>(number(block, kName, kMostAddress - 1)));
  }
  return wanted;
}

void read_prompts(const MsgpackValue& map, MooncakeAsk& ask) {
  const MsgpackValue* found = member(map, "quire_prompts");
  if (found == nullptr || found->as_map() == nullptr) return;
  for (const auto& [id, hash] : *found->as_map())
    for (MooncakeWanted& wanted : ask.wanted)
      if (id.as_text() != nullptr && *id.as_text() == wanted.id)
        wanted.prompt_hash = hash.as_unsigned();
}

std::vector<MooncakeRegion> read_regions(const MsgpackValue& map) {
  const auto addresses = numbers(map, "kv_caches_base_addr", kMostAddress - 1);
  const auto strides = numbers(map, "block_lens", kMostAddress - 1);
  const auto payloads = numbers(map, "kv_block_lens", kMostAddress - 1);
  const auto names = texts(map, "registered_layer_names");
  const auto indices = numbers(map, "registered_layer_indices", kMostRegions);
  auto groups = numbers(map, "registered_group_indices", kMostGroups - 1);
  groups.resize(groups.empty() ? addresses.size() : groups.size());
  for (const std::size_t size :
       {strides.size(), payloads.size(), names.size(), indices.size(), groups.size()})
    if (size != addresses.size()) fail("the lists of what is registered differ in length");
  std::vector<MooncakeRegion> regions;
  for (std::size_t i = 0; i < addresses.size(); ++i)
    regions.push_back({names[i], static_cast<int>(indices[i]), static_cast<int>(groups[i]),
                       addresses[i], strides[i], payloads[i]});
  return regions;
}

MooncakeAsk read_ask(const MsgpackValue& map) {
  MooncakeAsk ask;
  ask.host = text(need(map, "remote_hostname"), "remote_hostname");
  ask.port = static_cast<std::uint16_t>(number(need(map, "remote_port"), "remote_port", 65535));
  const auto rank = [&](std::string_view name) {
    return static_cast<int>(number(need(map, name), name, kMostRanks));
  };
  ask.tensor_ranks = rank("remote_tp_size");
  ask.tensor_rank = rank("remote_tp_rank");
  if (ask.tensor_rank >= ask.tensor_ranks) fail("remote_tp_rank must be below remote_tp_size");
  if (member(map, "remote_pp_size") != nullptr) ask.pipeline_ranks = rank("remote_pp_size");
  const MsgpackValue::Map* wanted = need(map, "req_blocks").as_map();
  if (wanted == nullptr || wanted->size() > kMostWanted)
    fail(fmt::format("req_blocks must be a map of at most {} requests", kMostWanted));
  std::set<std::string_view> transfers;
  ask.wanted.reserve(wanted->size());
  for (const auto& [id, value] : *wanted) {
    ask.wanted.push_back(read_wanted(id, value, kMostAskedBlocks - ask.num_blocks()));
    if (!transfers.insert(ask.wanted.back().transfer).second)
      fail("req_blocks has a transfer twice");
  }
  if (const MsgpackValue* layout = member(map, "layout_id"))
    ask.layout = number(*layout, "layout_id", ~std::uint64_t{0});
  ask.regions = read_regions(map);
  if (const MsgpackValue* quire = member(map, "quire_geometry")) {
    const std::string* bytes = quire->as_binary();
    if (bytes == nullptr || bytes->size() > kMostGeometryBytes) fail("quire_geometry is too long");
    ask.geometry = *bytes;
  }
  read_prompts(map, ask);
  return ask;
}

MooncakeAnswer read_answer(const MsgpackValue& map) {
  MooncakeAnswer answer;
  answer.verdict = static_cast<MooncakeVerdict>(number(need(map, "status"), "status", 3));
  answer.done = texts(map, "ok_reqs");
  answer.failed = texts(map, "err_reqs");
  if (const MsgpackValue* why = member(map, "err_msg")) {
    const std::string* said = why->as_text();
    if (said != nullptr) answer.why = said->substr(0, kMostTextBytes);
  }
  if (const MsgpackValue* sums = member(map, "quire_sums"); sums && sums->as_map())
    for (const auto& [id, sum] : *sums->as_map())
      answer.sums.emplace_back(text(id, "quire_sums"),
                               number(sum, "quire_sums", ~std::uint64_t{0}));
  if (const MsgpackValue* reason = member(map, "quire_reason"))
    answer.reason = reason->as_unsigned();
  answer.first_rows = numbers(map, "quire_first_rows", kMostAddress);
  return answer;
}

template <class Items, class Write>
void write_list(MsgpackWriter& out, std::string_view name, const Items& items, Write write) {
  out.text(name);
  out.array(items.size());
  for (const auto& item : items) write(item);
}

void write_wanted(MsgpackWriter& out, const std::vector<MooncakeWanted>& all) {
  out.text("req_blocks");
  out.map(all.size());
  for (const MooncakeWanted& wanted : all) {
    out.text(wanted.id);
    out.array(2);
    out.text(wanted.transfer);
    out.array(wanted.blocks.size());
    for (const auto& group : wanted.blocks) {
      out.array(group.size());
      for (const std::int64_t id : group) out.integer(static_cast<std::uint64_t>(id));
    }
  }
}

template <class T, class Read>
Result<T> parsed(std::string_view bytes, const char* what, Read read) try {
  const auto value = parse_msgpack(bytes);
  if (!value) fail(value.error().detail);
  if (value->as_map() == nullptr) fail("it is no map");
  return read(*value);
} catch (const Failure& failure) {
  return Error{ErrorCode::invalid_argument, fmt::format("{}: {}", what, failure.what()), {}};
}

}  // namespace

std::size_t MooncakeAsk::num_blocks() const {
  std::size_t count = 0;
  for (const MooncakeWanted& one : wanted)
    for (const auto& group : one.blocks) count += group.size();
  return count;
}

std::string encode_ask(const MooncakeAsk& ask) {
  const auto hashed = static_cast<std::size_t>(std::ranges::count_if(
      ask.wanted, [](const auto& one) { return one.prompt_hash.has_value(); }));
  MsgpackWriter out;
  out.map(11 + (ask.pipeline_ranks != 1 ? 1 : 0) + (ask.layout != 0 ? 1 : 0) +
          (ask.geometry.empty() ? 0 : 1) + (hashed > 0 ? 1 : 0));
  out.text("remote_hostname");
  out.text(ask.host);
  for (const auto& [name, value] : {std::pair("remote_port", static_cast<int>(ask.port)),
                                    std::pair("remote_tp_size", ask.tensor_ranks),
                                    std::pair("remote_tp_rank", ask.tensor_rank)}) {
    out.text(name);
    out.integer(static_cast<std::uint64_t>(value));
  }
  write_wanted(out, ask.wanted);
  const auto list_of = [&](const char* name, auto value) {
    write_list(out, name, ask.regions, [&](const MooncakeRegion& one) {
      out.integer(static_cast<std::uint64_t>(one.*value));
    });
  };
  list_of("kv_caches_base_addr", &MooncakeRegion::address);
  list_of("block_lens", &MooncakeRegion::stride);
  list_of("kv_block_lens", &MooncakeRegion::payload);
  write_list(out, "registered_layer_names", ask.regions,
             [&](const MooncakeRegion& one) { out.text(one.layer); });
  list_of("registered_layer_indices", &MooncakeRegion::layer_index);
  list_of("registered_group_indices", &MooncakeRegion::group);
  if (ask.pipeline_ranks != 1) {
    out.text("remote_pp_size");
    out.integer(static_cast<std::uint64_t>(ask.pipeline_ranks));
  }
  if (ask.layout != 0) {
    out.text("layout_id");
    out.integer(ask.layout);
  }
  if (!ask.geometry.empty()) {
    out.text("quire_geometry");
    out.binary({reinterpret_cast<const std::uint8_t*>(ask.geometry.data()), ask.geometry.size()});
  }
  if (hashed == 0) return out.take();
  out.text("quire_prompts");
  out.map(hashed);
  for (const MooncakeWanted& wanted : ask.wanted) {
    if (!wanted.prompt_hash) continue;
    out.text(wanted.id);
    out.integer(*wanted.prompt_hash);
  }
  return out.take();
}

Result<MooncakeAsk> parse_ask(std::string_view bytes) {
  return parsed<MooncakeAsk>(bytes, "MooncakeXferMetadata", read_ask);
}

std::string encode_answer(const MooncakeAnswer& answer) {
  MsgpackWriter out;
  out.map(1 + (answer.done.empty() ? 0 : 1) + (answer.failed.empty() ? 0 : 1) +
          (answer.why.empty() ? 0 : 1) + (answer.sums.empty() ? 0 : 1) + (answer.reason ? 1 : 0) +
          (answer.first_rows.empty() ? 0 : 1));
  out.text("status");
  out.integer(static_cast<std::uint64_t>(answer.verdict));
  const auto write = [&](const std::string& id) { out.text(id); };
  if (!answer.done.empty()) write_list(out, "ok_reqs", answer.done, write);
  if (!answer.failed.empty()) write_list(out, "err_reqs", answer.failed, write);
  if (!answer.why.empty()) {
    out.text("err_msg");
    out.text(answer.why);
  }
  if (!answer.sums.empty()) {
    out.text("quire_sums");
    out.map(answer.sums.size());
    for (const auto& [id, sum] : answer.sums) {
      out.text(id);
      out.integer(sum);
    }
  }
  if (answer.reason) {
    out.text("quire_reason");
    out.integer(*answer.reason);
  }
  if (!answer.first_rows.empty())
    write_list(out, "quire_first_rows", answer.first_rows,
               [&](std::uint64_t row) { out.integer(row); });
  return out.take();
}

Result<MooncakeAnswer> parse_answer(std::string_view bytes) {
  return parsed<MooncakeAnswer>(bytes, "MooncakeXferResponse", read_answer);
}

}  // namespace quire
