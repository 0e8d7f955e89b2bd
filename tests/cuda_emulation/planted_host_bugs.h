#pragma once

#include <map>
#include <string>

// Host code with one bug each; called, it gives 0 when that went unnoticed, 1 for a wrong result, 2
// for a call that was refused.
using HostBug = int (*)();
const std::map<std::string, HostBug>& host_bugs();
// Of kernels that begin before the one in front of them has ended.
const std::map<std::string, HostBug>& dependent_bugs();
