#include "backend/draft_ops.h"

#include "backend/ops.h"

namespace quire {

DraftOps& draft_ops(Ops& ops) { return dynamic_cast<DraftOps&>(ops); }

}  // namespace quire
