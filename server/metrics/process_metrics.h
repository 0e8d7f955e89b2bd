#pragma once
// process_* as the Prometheus client libraries name them, read from /proc when asked.

#include <prometheus/collectable.h>

namespace quire {

class ProcessMetrics : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override;
};

}  // namespace quire
