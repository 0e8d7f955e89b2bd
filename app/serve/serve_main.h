#pragma once
// `quire serve MODEL_DIR [flags]`: the whole server in one process.

namespace quire {

int serve_main(int argc, const char* const* argv);

}  // namespace quire
