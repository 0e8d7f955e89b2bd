#pragma once

namespace quire {

// `quire tokenize`: text to ids and back, for people and, with --jsonl, for programs. argv[0] is
// the name to show in the help. Returns the exit code.
int tokenize_main(int argc, const char* const* argv);

}  // namespace quire
