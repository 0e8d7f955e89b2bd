#pragma once

#include <string>
#include <string_view>

namespace quire {

// An expression in Oniguruma's Ruby syntax, rewritten for PCRE2 (UTF, UCP) so that it matches the
// same. Throws Failure for what PCRE2 cannot say: nested and intersected classes.
std::string pcre_from_oniguruma(std::string_view expression);

}  // namespace quire
