#include "server/generation/chunk_writer.h"

#include "openapi/dto_json.h"
#include "openapi/json_writer.h"

namespace quire {

ChunkWriter::ChunkWriter(std::string_view id, std::string_view object, std::int64_t created,
                         std::string_view model, std::string_view fingerprint) {
  openapi::JsonWriter json(prefix_);
  json.begin_object().key("id").string(id).key("object").string(object);
  json.key("created").integer(created).key("model").string(model);
  if (!fingerprint.empty()) json.key("system_fingerprint").string(fingerprint);
  json.key("choices").begin_array();
}

void ChunkWriter::end(std::string& out, const openapi::Usage* usage,
                      std::string_view members) const {
  out += ']';
  out += members;
  if (usage) {
    out += ",\"usage\":";
    openapi::append_usage(out, *usage);
  }
  out += '}';
}

void ChunkWriter::usage_chunk(std::string& out, const openapi::Usage& usage) const {
  begin(out);
  end(out, &usage);
}

}  // namespace quire
