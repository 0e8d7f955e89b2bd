// The draft model of a configuration.

#include "engine/core/engine_plan.h"
#include "engine/core/fingerprint.h"
#include "model/registry.h"

namespace quire {

LoadedDraft make_draft(const EngineConfig& config, const ModelConfig& model_config, Model& target,
                       Device& device, const OpsTraits& ops, LoadOptions options) {
  const SpeculativeConfig& speculative = config.speculative;
  if (!speculative.uses_draft_model()) return {};
  const bool is_inside = speculative.method == DraftMethod::mtp;
  if (!is_inside && options.measure) check_draft_target(config);
  const DraftForm form = is_inside                                   ? DraftForm::mtp
                         : speculative.method == DraftMethod::eagle3 ? DraftForm::eagle3
                                                                     : DraftForm::eagle;
  LoadedDraft draft;
  if (!options.shard.whole()) {
    options.shard = {};
    ModelConfig without_layers = model_config;
    without_layers.num_layers = 0;
    draft.ends = load_model(without_layers, config.model.path, device, ops, options);
  }
  draft.model =
      load_draft({.form = form,
                  .directory = is_inside ? config.model.path : speculative.model,
                  .target_config = model_config,
                  .target = draft.ends ? *draft.ends : target},
                 device, ops, options);
  return draft;
}

}  // namespace quire
