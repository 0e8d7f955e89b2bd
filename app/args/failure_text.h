#pragma once
// Why a program ends, for people: what the standard library throws is no
// sentence, and fields are called as the command line calls them.

#include <exception>
#include <string>

namespace quire {

std::string failure_text(const std::exception& failure);

}  // namespace quire
