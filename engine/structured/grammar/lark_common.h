#pragma once
// The terminals of Lark's module `common`, as regular expressions.

#include <optional>
#include <string_view>

namespace quire::structured {

std::optional<std::string_view> lark_common(std::string_view name);

}  // namespace quire::structured
