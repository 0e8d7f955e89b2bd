#pragma once
// The command line's names of configuration fields: the only place that knows them. A field is
// called like its flag, "--block-size" for CacheConfig::block_size, unless the table says
// otherwise.

#include <string>

namespace quire {

// The text with flags in place of fields (base/spelling.h). Names of no configuration stay.
std::string with_flags(std::string text);

}  // namespace quire
