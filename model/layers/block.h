#pragma once
// What a decoder layer is made of: a mixer, which lets tokens see earlier ones and may remember,
// and a feed-forward part, which sees one token at a time.

#include "model/forward_context.h"
#include "model/last_tokens.h"
#include "model/layers/layer_io.h"
#include "model/model.h"

namespace quire {

class Mixer {
 public:
  virtual ~Mixer() = default;
  // What it keeps between steps. The plan has no other source, so that a layer with a share of the
  // heads is planned for its share.
  virtual LayerKvSpec cache_spec(const KvSpecOptions& options) const = 0;
  // Throws Failure unless the pages are as large as what it will write into them.
  virtual void bind(const LayerCache& cache) = 0;
  // Of the cache bound.
  virtual bool lacks_scale() const { return false; }
  // out [T, hidden] f32, to be added to the residual stream; x [T, hidden] in the model's dtype.
  virtual void operator()(const LayerOutput& out, const LayerInput& x,
                          const ForwardContext& context) const = 0;
  // out [R, hidden] of the last tokens alone; it keeps what it keeps of all. The same as above
  // where `last` is empty.
  virtual void of_last(TensorView out, TensorView x, const LastTokens& last,
                       const ForwardContext& context) const {
    if (last.empty()) return (*this)(out, x, context);
    const Workspace::Scope scope(context.workspace);
    const TensorView all = context.workspace.take(out.dtype(), {x.extent(0), out.extent(1)});
    (*this)(all, x, context);
    context.ops.gather_rows(out, all, last.rows, context.stream);
  }
};

class FeedForward {
 public:
  virtual ~FeedForward() = default;
  virtual void operator()(const LayerOutput& out, const LayerInput& x,
                          const ForwardContext& context) const = 0;
};

}  // namespace quire
