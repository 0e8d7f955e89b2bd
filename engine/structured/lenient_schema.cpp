#include "engine/structured/lenient_schema.h"

#include "base/log.h"
#include "engine/structured/grammar_error.h"

namespace quire::structured {
namespace {

namespace json = boost::json;

constexpr int kMostLeftOut = 64;

void tell(const std::string& place, const std::string& what) {
  static log::Limit limit(10);
  if (limit.allows()) log::info("grammar.not_enforced", {{"place", place}, {"because", what}});
}

// The keyword that the pointer leads to.
bool leave_out(json::value& schema, const std::string& pointer, bool only_null) {
  const auto slash = pointer.rfind('/');
  if (slash == std::string::npos) return false;
  boost::system::error_code error;
  json::value* around = schema.find_pointer(pointer.substr(0, slash), error);
  const json::value* keyword = schema.find_pointer(pointer, error);
  if (around == nullptr || keyword == nullptr || !around->is_object()) return false;
  if (only_null && !keyword->is_null()) return false;
  json::object& object = around->get_object();
  for (auto it = object.begin(); it != object.end(); ++it) {
    if (&it->value() != keyword) continue;
    object.stable_erase(it);  // the order of properties is that of the keys
    return true;
  }
  return false;
}

}  // namespace

ExprId lenient_schema(json::value schema, const json::value& otherwise, const std::string& place,
                      const std::function<ExprId(const json::value&)>& make) {
  for (int i = 0; i < kMostLeftOut; ++i) {
    try {
      return make(schema);
    } catch (const GrammarFailure& failure) {
      const bool is_beyond = failure.kind() == GrammarErrorKind::unsupported;
      const bool is_costly = failure.kind() == GrammarErrorKind::limit;
      const bool is_left_out = !is_costly && leave_out(schema, failure.pointer(), !is_beyond);
      if (!is_left_out && !is_beyond && !is_costly) throw;
      tell(place + failure.pointer(), failure.what());
      if (!is_left_out) break;
    }
  }
  return make(otherwise);
}

}  // namespace quire::structured
