#pragma once
// Which draft models there are, and what one must share with its target.

#include <filesystem>
#include <memory>

#include "model/draft_model.h"
#include "model/registry.h"

namespace quire {

enum class DraftForm : std::uint8_t {
  eagle,   // one state per token: the output of the target's final norm
  eagle3,  // several of the target's streams
  mtp,     // a module inside the target's checkpoint
};

struct DraftSource {
  DraftForm form = DraftForm::eagle;
  std::filesystem::path directory;  // of its checkpoint: for mtp the target's
  const ModelConfig& target_config;
  Model& target;  // outlives the draft
};

// `options` as the target was loaded with. Throws Failure, naming file and field, for what is no
// match for the target, lacks tensors, or is not built.
struct DraftConfig;
// The same with a configuration that was read already; not for mtp, which is the target's.
std::unique_ptr<DraftModel> make_draft_of(DraftConfig config, const DraftSource& source,
                                          Device& device, const OpsTraits& ops,
                                          const LoadOptions& options);
std::unique_ptr<DraftModel> load_draft(const DraftSource& source, Device& device,
                                       const OpsTraits& ops, const LoadOptions& options);

}  // namespace quire
