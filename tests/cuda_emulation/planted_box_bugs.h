#pragma once

#include <map>
#include <string>

// Copies of boxes, barriers and roles of warps with one bug each; results as of host_bugs().
using BoxBug = int (*)();
const std::map<std::string, BoxBug>& box_bugs();
