#pragma once
// Is this build instrumented? Tests that repeat much do less of it then.

namespace quire::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace quire::test
