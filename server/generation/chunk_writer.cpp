#include "server/generation/chunk_writer.h"

#include "openapi/dto_json.h"
#include "openapi/json_writer.h"

namespace quire {

ChunkWriter::ChunkWriter(std::string_view id, std::string_view object, std::int64_t created,
                         std::string_view model) {
  openapi::JsonWriter json(prefix_);
  json.begin_object().key("id").string(id).key("object").string(object);
  json.key("created").integer(created).key("model").string(model).key("choices").begin_array();
}

void ChunkWriter::end(std::string& out, const openapi::Usage* usage) const {
  out += ']';
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
