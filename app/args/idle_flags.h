#pragma once
// Flags that were given where nothing reads them: refused by name, never ignored.

#include <span>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace quire {

// Throws CLI::ValidationError for the first of `flags` that the parsed command line gives:
// "--x has no effect BECAUSE; remove it". Flags that the command does not have count as not given.
void refuse_given(const CLI::App& app, std::span<const std::string_view> flags,
                  const std::string& because);

// Likewise, of all flags under these headings of --help.
void refuse_given_of(const CLI::App& app, std::span<const std::string_view> headings,
                     const std::string& because);

// What belongs to a server and its queue, for commands that drive one engine by hand, and what
// they say themselves. `what` is "a benchmark".
void refuse_of_servers(const CLI::App& app, const std::string& what);

// What an engine without a model and a cache cannot follow.
void refuse_beside_mock(const CLI::App& app);

}  // namespace quire
