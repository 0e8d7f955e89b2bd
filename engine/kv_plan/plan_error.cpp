#include "engine/kv_plan/plan_error.h"

namespace quire {

std::string_view name_of(KvPlanErrorCode code) {
  switch (code) {
    case KvPlanErrorCode::no_memory:
      return "no_memory";
    case KvPlanErrorCode::admission:
      return "admission";
    case KvPlanErrorCode::autofit_zero:
      return "autofit_zero";
    case KvPlanErrorCode::page_unify:
      return "page_unify";
    case KvPlanErrorCode::hma_off_unify:
      return "hma_off_unify";
    case KvPlanErrorCode::window_merge:
      return "window_merge";
    case KvPlanErrorCode::conflicting_specs:
      return "conflicting_specs";
    case KvPlanErrorCode::cp_with_sliding_window:
      return "cp_with_sliding_window";
    case KvPlanErrorCode::cp_with_several_groups:
      return "cp_with_several_groups";
    case KvPlanErrorCode::invalid_hash_block_size:
      return "invalid_hash_block_size";
    case KvPlanErrorCode::no_common_block_size:
      return "no_common_block_size";
    case KvPlanErrorCode::unsupported_kind:
      return "unsupported_kind";
    case KvPlanErrorCode::invalid_input:
      return "invalid_input";
  }
  return "unknown";
}

Error to_error(const KvPlanError& error) {
  return {ErrorCode::invalid_argument, error.detail, std::string(name_of(error.code))};
}

void throw_exception_from_error(const KvPlanError& error, const boost::source_location&) {
  throw Failure(to_error(error));
}

}  // namespace quire
