#include "app/args/failure_text.h"

#include "app/args/flag_names.h"
#include "base/message_of.h"

namespace quire {

std::string failure_text(const std::exception& failure) { return with_flags(message_of(failure)); }

}  // namespace quire
