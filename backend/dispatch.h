#pragma once
// From a dtype at run time to a template: dispatch_float(dtype, [&]<class T>(Type<T>) { … }).

#include <string>

#include "backend/dtype.h"
#include "base/error.h"

namespace quire {

template <class T>
struct Type {
  using type = T;
};

template <class F>
decltype(auto) dispatch_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(Type<float>{});
    case DType::bf16:
      return f(Type<bf16>{});
    case DType::f16:
      return f(Type<f16>{});
    default:
      throw Failure(ErrorCode::internal,
                    "no floating-point kernel for dtype " + std::string(name_of(dtype)));
  }
}

}  // namespace quire
