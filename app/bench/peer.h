#pragma once
// Another program on the same case: a command that prints JSON as llama-bench does.

#include <optional>
#include <string>
#include <string_view>

#include "app/bench/run.h"

namespace quire {

// Runs `command` through the shell with " -p N -n 0" or " -p 0 -n N" appended and returns its tokens a
// second. None for cases that it cannot be asked for: several requests, or a context before. Throws
// Failure where it fails or prints something else.
std::optional<double> peer_rate(const std::string& command, const BenchCase& what);

// avg_ts of the entry in what llama-bench -o json prints that has n_prompt and n_gen of the case.
std::optional<double> rate_in(std::string_view json, const BenchCase& what);

}  // namespace quire
