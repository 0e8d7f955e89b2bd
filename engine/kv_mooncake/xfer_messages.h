#pragma once
// What servers that decode and servers that prefill say to each other, as vLLM's MooncakeConnector
// does: MooncakeXferMetadata and MooncakeXferResponse in MessagePack. Members that vLLM does not
// know are Quire's own and left alone there. Pure; nothing that was sent is believed.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace quire {

// Blocks of one layer at whoever decodes.
struct MooncakeRegion {
  std::string layer;  // "model.layers.0.self_attn.attn"
  int layer_index = 0;
  int group = 0;
  std::uint64_t address = 0;
  std::uint64_t stride = 0;   // from block to block
  std::uint64_t payload = 0;  // of a block's bytes those that are the layer's
};

struct MooncakeWanted {
  std::string id;                                      // as whoever decodes calls it
  std::string transfer;                                // as both were told
  std::vector<std::vector<std::int64_t>> blocks = {};  // by group; none: it may be forgotten
  std::optional<std::uint64_t> prompt_hash = {};       // Quire's own
};

inline constexpr std::size_t kMostAskedBlocks = 1 << 20;  // of an ask

struct MooncakeAsk {
  std::string host;  // where its memory is written to
  std::uint16_t port = 0;
  int tensor_ranks = 1, tensor_rank = 0, pipeline_ranks = 1;
  std::vector<MooncakeWanted> wanted = {};
  std::vector<MooncakeRegion> regions = {};
  std::uint64_t layout = 0;
  std::string geometry = {};  // Quire's own; empty: another server

  std::size_t num_blocks() const;
};

enum class MooncakeVerdict : std::uint8_t { finish, go_on, error, layout_miss };

struct MooncakeAnswer {
  MooncakeVerdict verdict = MooncakeVerdict::finish;
  std::vector<std::string> done = {}, failed = {};
  std::string why = {};
  // Quire's own: of what was written; why something was not, as KvLossReason.
  std::vector<std::pair<std::string, std::uint64_t>> sums = {};
  std::optional<std::uint64_t> reason = {};
  std::vector<std::uint64_t> first_rows = {};  // Quire's own: by layer, what was kept begins here
};

std::string encode_ask(const MooncakeAsk& ask);
Result<MooncakeAsk> parse_ask(std::string_view bytes);
std::string encode_answer(const MooncakeAnswer& answer);
Result<MooncakeAnswer> parse_answer(std::string_view bytes);

}  // namespace quire
