#pragma once
// What stands in a server's way on this machine, and what to do about it.

#include <string>
#include <vector>

#include "app/doctor/machine_facts.h"

namespace quire {

struct Advice {
  std::string about;  // one word, for scripts
  std::string what;   // what is wrong
  std::string todo;   // what helps
};

std::vector<Advice> advice_for(const MachineFacts& facts);

}  // namespace quire
