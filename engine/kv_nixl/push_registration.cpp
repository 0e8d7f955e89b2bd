#include "engine/kv_nixl/push_registration.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <random>

#include "base/error.h"
#include "engine/kv_events/msgpack.h"
#include "engine/kv_nixl/msgpack_members.h"

namespace quire {
namespace {

constexpr std::size_t kMostNameBytes = 1024;
constexpr std::uint64_t kMostRanks = 1024;
constexpr std::uint64_t kMostBlock = 0x7fffffff;
constexpr std::uint64_t kMostPort = 65535;
constexpr std::size_t kMostGroups = 64;
constexpr std::size_t kEndDigits = 8;
constexpr std::string_view kForgotten = "QUIRE_FORGOTTEN:";
constexpr std::string_view kLost = "QUIRE_LOST:";
constexpr std::string_view kQuestion = "QUIRE_PUSH:";
constexpr std::array<std::string_view, 3> kStates{"unknown", "held", "written"};

std::string name(const MsgpackMembers& members, std::string_view member) {
  std::string text = members.text(member);
  if (text.empty() || text.size() > kMostNameBytes)
    members.refuse(member, fmt::format("a text of 1 to {} bytes", kMostNameBytes));
  return text;
}

int number(const MsgpackMembers& members, std::string_view member, std::uint64_t least,
           std::uint64_t most) {
  return static_cast<int>(members.number(member, least, most));
}

// By group; one group may be a list of its own.
std::vector<std::vector<std::int64_t>> read_blocks(const MsgpackMembers& members) {
  constexpr std::string_view kMember = "local_block_ids";
  std::vector<std::vector<std::int64_t>> blocks;
  const auto add = [&](std::vector<std::int64_t>& group, const MsgpackValue& id) {
    const auto value = id.as_unsigned();
    if (!value || *value > kMostBlock)
      members.refuse(kMember, fmt::format("lists of numbers from 0 to {}", kMostBlock));
    group.push_back(static_cast<std::int64_t>(*value));
  };
  const MsgpackValue::Array& items = members.items(kMember);
  if (!items.empty() && items.front().as_array() == nullptr) {
    auto& group = blocks.emplace_back();
    for (const MsgpackValue& id : items) add(group, id);
    return blocks;
  }
  if (items.size() > kMostGroups)
    members.refuse(kMember, fmt::format("at most {} groups", kMostGroups));
  for (const MsgpackValue& item : items) {
    const MsgpackValue::Array* ids = item.as_array();
    if (ids == nullptr) members.refuse(kMember, "a list of lists");
    auto& group = blocks.emplace_back();
    for (const MsgpackValue& id : *ids) add(group, id);
  }
  return blocks;
}

NixlPushRegistration read_registration(const MsgpackValue& value) {
  const MsgpackMembers members(value, "PUSH_REG");
  NixlPushRegistration read;
  read.request = name(members, "request_id");
  read.decode_engine = name(members, "decode_engine_id");
  read.decode_host = name(members, "decode_host");
  read.decode_port = number(members, "decode_port", 1, kMostPort);
  read.decode_ranks = number(members, "decode_tp_size", 1, kMostRanks);
  read.blocks = read_blocks(members);
  read.prefill_engine = name(members, "remote_engine_id");
  read.prefill_host = name(members, "remote_host");
  read.prefill_port = number(members, "remote_port", 1, kMostPort);
  read.prefill_ranks = number(members, "remote_tp_size", 1, kMostRanks);
  if (members.has("remote_pp_size")) number(members, "remote_pp_size", 1, 1);
  if (members.has("quire_prompt_hash"))
    read.prompt_hash = members.number("quire_prompt_hash", 0, UINT64_MAX);
  return read;
}

std::optional<std::string_view> behind(std::string_view notice, std::string_view begin) {
  if (!notice.starts_with(begin)) return std::nullopt;
  notice.remove_prefix(begin.size());
  return notice.empty() || notice.size() > kMostNameBytes ? std::nullopt : std::optional(notice);
}

// A list of them, none longer than a name may be.
std::optional<std::vector<std::string>> read_texts(std::string_view bytes) {
  const auto value = bytes.size() > kMostPushRegistrationBytes ? Result<MsgpackValue>(Error{})
                                                               : parse_msgpack(bytes);
  const MsgpackValue::Array* const items = value ? value->as_array() : nullptr;
  if (items == nullptr || items->size() > kMostPushNames) return std::nullopt;
  std::vector<std::string> texts;
  for (const MsgpackValue& item : *items) {
    const std::string* const text = item.as_text();
    if (text == nullptr || text->size() > kMostNameBytes) return std::nullopt;
    texts.push_back(*text);
  }
  return texts;
}

}  // namespace

std::size_t NixlPushRegistration::num_blocks() const {
  return std::accumulate(blocks.begin(), blocks.end(), std::size_t{0},
                         [](std::size_t sum, const auto& group) { return sum + group.size(); });
}

std::string encode_push_registration(const NixlPushRegistration& registration) {
  MsgpackWriter out;
  const auto text = [&](std::string_view member, std::string_view value) {
    out.text(member);
    out.text(value);
  };
  const auto number = [&](std::string_view member, std::uint64_t value) {
    out.text(member);
    out.integer(value);
  };
  out.map(registration.prompt_hash ? 12 : 11);
  text("request_id", registration.request);
  text("decode_engine_id", registration.decode_engine);
  text("decode_host", registration.decode_host);
  number("decode_port", static_cast<std::uint64_t>(registration.decode_port));
  number("decode_tp_size", static_cast<std::uint64_t>(registration.decode_ranks));
  out.text("local_block_ids");
  out.array(registration.blocks.size());
  for (const auto& group : registration.blocks) {
    out.array(group.size());
    for (const std::int64_t id : group) out.signed_integer(id);
  }
  text("remote_engine_id", registration.prefill_engine);
  text("remote_host", registration.prefill_host);
  number("remote_port", static_cast<std::uint64_t>(registration.prefill_port));
  number("remote_tp_size", static_cast<std::uint64_t>(registration.prefill_ranks));
  number("remote_pp_size", 1);
  if (registration.prompt_hash) number("quire_prompt_hash", *registration.prompt_hash);
  return std::string(kPushRegistration) + out.take();
}

Result<NixlPushRegistration> parse_push_registration(std::string_view notice) try {
  if (!notice.starts_with(kPushRegistration))
    return Error{ErrorCode::invalid_argument, "the notice is no registration", {}};
  notice.remove_prefix(kPushRegistration.size());
  if (notice.size() > kMostPushRegistrationBytes)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("a registration has {} bytes; {} are read", notice.size(),
                             kMostPushRegistrationBytes),
                 {}};
  const auto value = parse_msgpack(notice);
  if (!value) return value.error();
  return read_registration(*value);
} catch (const Failure& failure) {
  return failure.error();
}

std::string_view base_request_name(std::string_view name) {
  if (name.size() <= kEndDigits + 1) return name;
  const std::string_view end = name.substr(name.size() - kEndDigits);
  const auto is_digit = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  };
  if (name[name.size() - kEndDigits - 1] != '-' || !std::ranges::all_of(end, is_digit)) return name;
  return name.substr(0, name.size() - kEndDigits - 1);
}

std::string random_request_name(std::string_view base) {
  std::random_device random;
  return fmt::format("{}-{:08x}", base, random());
}

std::optional<NixlDone> parse_nixl_done(std::string_view notice) {
  const auto colon = notice.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  NixlDone done{.request = std::string(notice.substr(0, colon))};
  const char* const end = notice.data() + notice.size();
  const auto read = std::from_chars(notice.data() + colon + 1, end, done.ranks);
  if (read.ec != std::errc() || read.ptr != end || done.ranks < 1) return std::nullopt;
  return done;
}

std::string encode_push_forgotten(std::string_view request) {
  return fmt::format("{}{}", kForgotten, request);
}

std::optional<std::string> parse_push_forgotten(std::string_view notice) {
  const auto request = behind(notice, kForgotten);
  return request ? std::optional<std::string>(*request) : std::nullopt;
}

std::string encode_push_lost(const NixlPushLost& lost) {
  return fmt::format("{}{}:{}", kLost, lost.reason, lost.request);
}

std::optional<NixlPushLost> parse_push_lost(std::string_view notice) {
  const auto rest = behind(notice, kLost);
  if (!rest) return std::nullopt;
  const auto colon = rest->find(':');
  if (colon == std::string_view::npos || colon + 1 == rest->size()) return std::nullopt;
  return NixlPushLost{std::string(rest->substr(colon + 1)), std::string(rest->substr(0, colon))};
}

std::string encode_push_question(const std::vector<std::string>& requests) {
  MsgpackWriter out;
  out.array(requests.size());
  for (const std::string& request : requests) out.text(request);
  return std::string(kQuestion) + out.take();
}

std::optional<std::vector<std::string>> parse_push_question(std::string_view question) {
  if (!question.starts_with(kQuestion)) return std::nullopt;
  question.remove_prefix(kQuestion.size());
  return read_texts(question);
}

std::string encode_push_states(const std::vector<NixlPushStatus>& states) {
  MsgpackWriter out;
  out.array(states.size());
  for (const NixlPushStatus& one : states)
    out.text(one.state == NixlPushState::lost ? fmt::format("{}{}", kLost, one.reason)
                                              : kStates[static_cast<std::size_t>(one.state)]);
  return out.take();
}

std::optional<std::vector<NixlPushStatus>> parse_push_states(std::string_view answer) {
  const auto texts = read_texts(answer);
  if (!texts) return std::nullopt;
  std::vector<NixlPushStatus> states;
  for (const std::string& text : *texts) {
    if (text.starts_with(kLost)) {
      states.push_back({NixlPushState::lost, text.substr(kLost.size())});
      continue;
    }
    const auto found = std::ranges::find(kStates, text);
    if (found == kStates.end()) return std::nullopt;
    states.push_back({static_cast<NixlPushState>(found - kStates.begin())});
  }
  return states;
}

}  // namespace quire
