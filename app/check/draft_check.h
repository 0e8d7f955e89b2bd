#pragma once
// Reference drafts through an engine that is driven by hand: what the draft model proposes at given
// contexts, and whole greedy runs step by step.

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "app/check/draft_golden.h"
#include "app/check/golden.h"
#include "engine/core/engine_core.h"

namespace quire {

struct DraftCaseResult {
  double max_abs = 0.0;  // of the drafts' logits, over all contexts
  int matches = 0;       // drafts
  int drafts = 0;
  int unsafe_misses = 0;  // other drafts although the reference led by more than kSafeDraftGap
};

struct DraftLoopResult {
  std::size_t steps = 0;         // until the first that differs in drafts or tokens
  std::optional<bool> counters;  // equal; empty: the run ended before
};

class DraftCheck {
 public:
  // `config` without a model path and drafts, which are the golden's. Throws Failure where the
  // engine cannot start.
  DraftCheck(EngineConfig config, const DraftGolden& golden, BackendFactory backend);

  // Contexts, `batch` of them at a time.
  std::vector<DraftCaseResult> run_cases(int batch);
  std::vector<DraftLoopResult> run_loops();
  DType dtype() const { return dtype_; }

 private:
  struct Proposal {
    std::vector<TokenId> drafts;
    std::vector<float> logits;
  };
  // Of one request, by context length.
  using Proposals = std::map<int, Proposal>;

  std::unique_ptr<EngineCore> engine(int num_drafts, bool is_whole);
  void compare(const DraftContext& expected, const Proposal& found, DraftCaseResult& result) const;
  DraftLoopResult run_loop(const DraftLoop& loop);

  EngineConfig config_;
  const DraftGolden& golden_;
  BackendFactory backend_;
  DType dtype_;
  std::map<RequestId, Proposals> proposals_;
};

// Where a reference below float32 led by more than this, the draft must be the same.
inline constexpr double kSafeDraftGap = 0.5;

}  // namespace quire
