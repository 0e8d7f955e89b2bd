#include "server/page/files.h"

// The assembler puts the files in; CMakeLists.txt tells it where they are.
#define PAGE_FILE(symbol, file)                                                       \
  __asm__(".section .rodata\n" #symbol "_begin:\n.incbin \"" file "\"\n" #symbol      \
          "_end:\n.byte 0\n.previous\n");                                             \
  extern "C" const char symbol##_begin[], symbol##_end[]

PAGE_FILE(quire_page_index, "index.html");
PAGE_FILE(quire_page_style, "page.css");
PAGE_FILE(quire_page_main, "main.js");
PAGE_FILE(quire_page_api, "api.js");
PAGE_FILE(quire_page_inside, "inside.js");
PAGE_FILE(quire_page_markup, "markup.js");
PAGE_FILE(quire_page_metrics, "metrics.js");
PAGE_FILE(quire_page_settings, "settings.js");
PAGE_FILE(quire_page_talk, "talk.js");
PAGE_FILE(quire_page_docs, "docs.html");
PAGE_FILE(quire_page_docs_style, "docs.css");
PAGE_FILE(quire_page_docs_script, "docs.js");

namespace quire {

std::span<const PageFile> page_files() {
  static const PageFile kFiles[] = {
      {"index.html", {quire_page_index_begin, quire_page_index_end}},
      {"page.css", {quire_page_style_begin, quire_page_style_end}},
      {"main.js", {quire_page_main_begin, quire_page_main_end}},
      {"api.js", {quire_page_api_begin, quire_page_api_end}},
      {"inside.js", {quire_page_inside_begin, quire_page_inside_end}},
      {"markup.js", {quire_page_markup_begin, quire_page_markup_end}},
      {"metrics.js", {quire_page_metrics_begin, quire_page_metrics_end}},
      {"settings.js", {quire_page_settings_begin, quire_page_settings_end}},
      {"talk.js", {quire_page_talk_begin, quire_page_talk_end}},
      {"docs.html", {quire_page_docs_begin, quire_page_docs_end}},
      {"docs.css", {quire_page_docs_style_begin, quire_page_docs_style_end}},
      {"docs.js", {quire_page_docs_script_begin, quire_page_docs_script_end}},
  };
  return kFiles;
}

}  // namespace quire
