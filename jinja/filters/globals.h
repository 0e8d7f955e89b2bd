#pragma once
// The names that every template finds: range, dict, namespace, cycler, joiner, lipsum,
// raise_exception, strftime_now.

#include <string>
#include <string_view>

#include "jinja/values/dict.h"
#include "jinja/values/object.h"

namespace quire::jinja {

const Dict& global_names();
Value dict_fromkeys(Evaluation& evaluation, Arguments& arguments);

// {% set ns = namespace(found=false) %}: the one thing whose attributes a template may set.
class Namespace : public Object {
 public:
  explicit Namespace(Dict attributes) : attributes_(std::move(attributes)) {}
  std::string_view type_name() const override { return "Namespace"; }
  void append_repr(std::string& out, int depth) const override;
  Value attribute(std::string_view name) override;
  void set(Evaluation& evaluation, std::string_view name, Value value);
  void clear() override { attributes_ = Dict(); }

 private:
  Dict attributes_;
};

}  // namespace quire::jinja
