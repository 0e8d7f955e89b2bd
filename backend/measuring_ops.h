#pragma once
// Operators that compute nothing, for walking through a step to learn what it takes.

#include <memory>

#include "backend/ops.h"

namespace quire {

// Operators with the traits of `backend`, which must outlive them.
std::unique_ptr<Ops> make_measuring_ops(const OpsTraits& backend);

}  // namespace quire
