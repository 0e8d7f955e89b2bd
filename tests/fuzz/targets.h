#pragma once
// What libFuzzer drives (CMake's QUIRE_FUZZ, clang++), and what CI replays the corpora through (the
// `fuzz_replay` test): each takes any bytes, and aborts where a promise is broken. Refusing bytes is
// no failure. Any thread; no state between calls but caches.

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace quire::fuzz {

inline void promise(bool kept, const char* what) {
  if (kept) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

void http(std::string_view bytes);         // a connection's input, whole and in pieces
void json_bodies(std::string_view bytes);  // the first byte chooses the endpoint
void jinja(std::string_view bytes);        // a chat template; JSON as templates know it
void tokenizer(std::string_view bytes);    // tokenizer.json
void safetensors(std::string_view bytes);  // header and data
void config(std::string_view bytes);       // config.json, generation_config.json
void gguf(std::string_view bytes);         // header
void wire(std::string_view bytes);         // between front end and engine
void kv_transfer(std::string_view bytes);  // between engines
void kv_nixl(std::string_view bytes);      // of servers that speak NIXL
void kv_mooncake(std::string_view bytes);  // of servers that speak Mooncake
void kv_events(std::string_view bytes);    // events made of the bytes, as they are published

}  // namespace quire::fuzz
