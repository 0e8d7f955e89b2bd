#pragma once
// quire chat: a conversation in the terminal, with a model of one's own or any OpenAI-compatible
// server.

namespace quire {

int chat_main(int argc, const char* const* argv);

}  // namespace quire
