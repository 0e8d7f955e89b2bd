#pragma once
// What servers say to each other where whoever prefills writes into the blocks of whoever decodes
// (vLLM's NixlPushConnector), as notices over NIXL. Whoever decodes registers its blocks under a
// name that both sides' requests share but for a random end; with the last bytes comes "NAME:RANKS"
// back. What begins with "QUIRE_" only Quire servers say, and only to each other. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quire {

struct NixlPushRegistration {
  std::string request;  // of whoever decodes
  // Where whoever decodes is asked for its metadata, and where its blocks are.
  std::string decode_engine, decode_host;
  int decode_port = 0;
  int decode_ranks = 1;
  std::vector<std::vector<std::int64_t>> blocks;  // by group, the last of the prompt
  // Whom it is said to.
  std::string prefill_engine, prefill_host;
  int prefill_port = 0;
  int prefill_ranks = 1;
  // The prompt that a Quire server expects; unset: another server registers.
  std::optional<std::uint64_t> prompt_hash = {};

  std::size_t num_blocks() const;
};

inline constexpr std::string_view kPushRegistration = "PUSH_REG:";
inline constexpr std::size_t kMostPushRegistrationBytes = 1 << 20;

// With what it begins with.
std::string encode_push_registration(const NixlPushRegistration& registration);
// The error names the member and its limit.
Result<NixlPushRegistration> parse_push_registration(std::string_view notice);

// Without the random end "-1234abcd", where it has one.
std::string_view base_request_name(std::string_view name);
// With one.
std::string random_request_name(std::string_view base);

// "NAME:RANKS": one of so many ranks has written its part, or has read it.
struct NixlDone {
  std::string request;
  int ranks = 1;
};
std::optional<NixlDone> parse_nixl_done(std::string_view notice);

// Nobody waits for it any more.
std::string encode_push_forgotten(std::string_view request);
std::optional<std::string> parse_push_forgotten(std::string_view notice);

// It will not be written, and nothing of it is on its way.
struct NixlPushLost {
  std::string request;
  std::string reason;  // of kKvLossNames
};
std::string encode_push_lost(const NixlPushLost& lost);
std::optional<NixlPushLost> parse_push_lost(std::string_view notice);

// Whoever decodes asks the side channel of whoever prefills what became of registrations: notices
// say nothing of one that never came, or was refused. Only Quire servers are asked.
inline constexpr std::size_t kMostPushNames = 256;  // of one question
enum class NixlPushState : std::uint8_t {
  unknown,
  held,
  written,  // or on its way
  lost,     // or refused; nothing of it is on its way
};
struct NixlPushStatus {
  NixlPushState state = NixlPushState::unknown;
  std::string reason = {};  // of kKvLossNames, where it is lost
};
std::string encode_push_question(const std::vector<std::string>& requests);
// Empty: it is another question.
std::optional<std::vector<std::string>> parse_push_question(std::string_view question);
std::string encode_push_states(const std::vector<NixlPushStatus>& states);
std::optional<std::vector<NixlPushStatus>> parse_push_states(std::string_view answer);

}  // namespace quire
