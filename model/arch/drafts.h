#pragma once
// One factory per form of draft model; draft_registry.cpp chooses.

#include <memory>

#include "model/draft_config.h"
#include "model/layers/draft_base.h"

namespace quire {

std::unique_ptr<DraftModel> make_eagle(DraftParts parts);
std::unique_ptr<DraftModel> make_eagle3(DraftParts parts, const DraftConfig& config);
std::unique_ptr<DraftModel> make_deepseek_mtp(DraftParts parts);
std::unique_ptr<DraftModel> make_glm4_mtp(DraftParts parts);
std::unique_ptr<DraftModel> make_qwen3_next_mtp(DraftParts parts);

}  // namespace quire
