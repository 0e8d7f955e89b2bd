#pragma once

namespace quire {

// `quire grammar`: what a schema, regular expression or grammar lets through, for people and, with
// --jsonl, for programs. argv[0] is the name to show in the help. Returns the exit code.
int grammar_main(int argc, const char* const* argv);

}  // namespace quire
