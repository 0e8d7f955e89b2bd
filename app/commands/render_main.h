#pragma once

namespace quire {

// `quire render`: conversations to prompts with a model's chat template, for people and, with
// --jsonl, for programs. argv[0] is the name to show in the help. Returns the exit code.
int render_main(int argc, const char* const* argv);

}  // namespace quire
