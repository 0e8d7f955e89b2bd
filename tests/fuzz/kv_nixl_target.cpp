// What NIXL's, vLLM's and Quire's servers send: answers and questions of side channels, what an
// agent says of itself, notices.

#include "engine/kv_nixl/agent_blob.h"
#include "engine/kv_nixl/handshake.h"
#include "engine/kv_nixl/profile.h"
#include "engine/kv_nixl/push_registration.h"
#include "tests/fuzz/targets.h"

namespace quire::fuzz {
namespace {

void metadata(std::string_view bytes, const NixlProfile& profile) {
  const auto read = parse_metadata(bytes, profile);
  if (!read) return promise(!read.error().detail.empty(), "a refusal says why");
  promise(read->kernel_blocks_per_block > 0, "a block holds one of the kernel's at least");
  promise(!read->base_addresses.empty(), "there is a region");
  promise(read->block_lens.size() == read->base_addresses.size(), "each region has its bytes");
  promise(read->block_strides.size() == read->base_addresses.size(), "each region has its stride");
  promise(read->region_blocks.empty() || read->region_blocks.size() == read->base_addresses.size(),
          "each region has its blocks, or none has");
}

void side_channel(std::string_view bytes) {
  (void)parse_metadata_request(bytes);
  const auto handshake = parse_handshake(bytes);
  for (const NixlProfile& profile : nixl_profiles()) {
    metadata(bytes, profile);
    if (handshake) metadata(handshake->metadata, profile);
  }
  if (const auto blob = parse_agent_blob(bytes))
    for (const AgentBlob::Range& range : blob->ranges)
      promise(blob->covers(range.memory, range.address, range.bytes), "what is offered is covered");
  if (const auto names = parse_push_question(bytes)) {
    promise(names->size() <= kMostPushNames, "a question has no more names than are answered");
    promise(parse_push_question(encode_push_question(*names)) == names,
            "a question's second round is its first");
  }
  if (const auto states = parse_push_states(bytes)) {
    const std::string once = encode_push_states(*states);
    const auto again = parse_push_states(once);
    promise(again && encode_push_states(*again) == once, "an answer's second round is its first");
  }
}

void notices(std::string_view bytes) {
  if (const auto registration = parse_push_registration(bytes)) {
    const std::string once = encode_push_registration(*registration);
    const auto again = parse_push_registration(once);
    promise(again && encode_push_registration(*again) == once,
            "a registration's second round is its first");
  }
  promise(base_request_name(bytes).size() <= bytes.size(), "a name comes out of the bytes");
  if (const auto done = parse_nixl_done(bytes)) promise(done->ranks > 0, "a rank has done it");
  if (const auto lost = parse_push_lost(bytes))
    promise(encode_push_lost(*lost) == bytes, "a loss's second round is its first");
  if (const auto forgotten = parse_push_forgotten(bytes))
    promise(encode_push_forgotten(*forgotten) == bytes, "a name's second round is its first");
}

}  // namespace

void kv_nixl(std::string_view bytes) {
  side_channel(bytes);
  notices(bytes);
}

}  // namespace quire::fuzz
