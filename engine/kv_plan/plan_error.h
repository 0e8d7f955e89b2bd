#pragma once
// Why there is no plan: a stable code, the numbers, and a sentence that says what to change.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quire {

enum class KvPlanErrorCode : std::uint8_t {
  no_memory,
  admission,      // one request of max_model_len does not fit
  autofit_zero,   // not one token fits
  page_unify,     // page sizes that are no multiples of each other
  hma_off_unify,  // hybrid manager off, and the layers are of kinds that cannot become one
  window_merge,
  conflicting_specs,  // one layer, two workers, two specs
  cp_with_sliding_window,
  cp_with_several_groups,
  invalid_hash_block_size,
  no_common_block_size,  // no kernel reads the block size
  unsupported_kind,
  invalid_input,
};

struct KvPlanError {
  KvPlanErrorCode code = KvPlanErrorCode::invalid_input;
  std::string detail = {};
  // admission
  std::int64_t max_model_len = 0;
  std::int64_t needed_bytes = 0;             // without the null block
  std::int64_t available_bytes = 0;          // of the worker that has too few
  std::int64_t estimated_max_model_len = 0;  // works; 0: none does
  std::int64_t memory_max_model_len = 0;     // if the null block were usable, as vLLM counts
};

std::string_view name_of(KvPlanErrorCode code);
Error to_error(const KvPlanError& error);
[[noreturn]] void throw_exception_from_error(const KvPlanError& error,
                                             const boost::source_location&);

template <class T>
using PlanResult = boost::system::result<T, KvPlanError>;

}  // namespace quire
