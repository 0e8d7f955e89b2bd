#pragma once
// A folder of reference drafts: target/, draft/ (or a module inside the target), golden.json and
// golden.safetensors. Used by `quire check` and by tests.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/ids.h"
#include "engine/config.h"

namespace quire {

// What a draft model proposes once this many tokens are known, the last of them just drawn.
struct DraftContext {
  int length = 0;
  std::vector<TokenId> drafts;  // the target's ids
  std::vector<double> gaps;     // top-1 minus top-2 logit of each
  std::vector<float> logits;    // [drafts, the draft's vocabulary]
};

struct DraftCase {
  std::vector<TokenId> tokens;
  std::vector<DraftContext> contexts;
};

// A whole greedy run.
struct DraftLoop {
  struct Step {
    int context = 0;
    std::vector<TokenId> drafts, emitted;
  };
  int num_drafts = 0;  // per step
  std::vector<TokenId> prompt, output;
  std::vector<Step> steps;
  std::int64_t total_steps = 0, total_drafts = 0, total_accepted = 0;  // as the counters end
};

struct DraftGolden {
  std::string name;
  SpeculativeConfig speculative;  // method, draft model, most drafts
  std::filesystem::path target;
  double atol = 0.0;
  std::vector<DraftCase> cases;
  std::vector<DraftLoop> loops;
};

bool is_draft_golden(const std::filesystem::path& directory);
// Throws Failure naming file and field.
DraftGolden read_draft_golden(const std::filesystem::path& directory);

}  // namespace quire
