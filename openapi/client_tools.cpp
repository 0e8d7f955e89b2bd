#include "openapi/client_tools.h"

namespace quire::openapi {

namespace {

constexpr std::string_view kRunsBash =
    "Runs commands in a bash session that lasts from one call to the next; returns their output.";
constexpr std::string_view kBash =
    R"({"type":"object","properties":{)"
    R"("command":{"type":"string","description":"The bash command to run. Required unless the tool is restarted."},)"
    R"("restart":{"type":"boolean","description":"true restarts this tool; otherwise leave it out."}}})";

constexpr std::string_view kEdits =
    "Views, creates and edits text files. str_replace needs old_str to be in the file exactly once.";
constexpr std::string_view kEditorMembers =
    R"("path":{"type":"string","description":"Absolute path of a file or folder."},)"
    R"("view_range":{"type":"array","items":{"type":"integer"},)"
    R"("description":"Of view: first and last line, from 1; -1 is the end."},)"
    R"("file_text":{"type":"string","description":"Of create: what the file is to hold."},)"
    R"("old_str":{"type":"string","description":"Of str_replace: the text to replace."},)"
    R"("new_str":{"type":"string","description":"Of str_replace: its replacement."},)"
    R"("insert_line":{"type":"integer","description":"Of insert: the line to insert after; 0 is the beginning."},)"
    R"("insert_text":{"type":"string","description":"Of insert: the text to insert."}},)"
    R"("required":["command","path"]})";

// The first editors can take an edit back.
ClientTool editor(std::string_view name, bool undoes) {
  const std::string begin = R"({"type":"object","properties":{"command":{"type":"string",)"
                            R"("enum":["view","create","str_replace","insert")";
  const std::string more = undoes ? R"(,"undo_edit"]},)" : "]},";
  return {name, kEdits, begin + more + std::string(kEditorMembers)};
}

}  // namespace

// platform.claude.com/docs, "Bash tool" and "Text editor tool".
std::optional<ClientTool> find_client_tool(std::string_view type) {
  if (type == "bash_20241022" || type == "bash_20250124")
    return ClientTool{"bash", kRunsBash, std::string(kBash)};
  if (type == "text_editor_20241022" || type == "text_editor_20250124")
    return editor("str_replace_editor", true);
  if (type == "text_editor_20250429" || type == "text_editor_20250728")
    return editor("str_replace_based_edit_tool", false);
  return std::nullopt;
}

}  // namespace quire::openapi
