#pragma once
// Kinds of flags that more than one command has.

#include <chrono>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace quire {

// A length of time, given in seconds with or without a fraction, of a millisecond or more. least:
// below it the flag has no meaning; 0: zero has one.
void add_seconds(CLI::App& app, const std::string& flag, std::chrono::milliseconds& value,
                 const std::string& what, std::chrono::milliseconds least = {});

// As vLLM takes them: a JSON list, or plain words; several may be given.
void add_words(CLI::App& app, const std::string& flag, std::vector<std::string>& words,
               const std::string& what);

// Words that are names of hosts, or * for all.
void add_host_names(CLI::App& app, const std::string& flag, std::vector<std::string>& names,
                    const std::string& what);

}  // namespace quire
