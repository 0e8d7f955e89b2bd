#pragma once

namespace quire {

// quire parse: what a model wrote → reasoning, content and tool calls.
int parse_main(int argc, const char* const* argv);

}  // namespace quire
