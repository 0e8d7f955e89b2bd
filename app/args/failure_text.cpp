#include "app/args/failure_text.h"

#include "app/args/flag_names.h"
#include "base/words_of.h"

namespace quire {

std::string failure_text(const std::exception& failure) { return with_flags(words_of(failure)); }

}  // namespace quire
