// Products of a warpgroup: when they happen, and what a thread may not do before.

#include <algorithm>
#include <cmath>

#include "sanitizers.h"
#include "state.h"

namespace emulation {
namespace {

Thread& me() { return *scheduler().current; }

void compute(GroupProduct& product, Site site) {
  Thread& thread = me();
  product.touch(product);
  thread.in = &product;
  meet(thread.block->groups[thread.id / 128], 128, product.compute, false, site);
  product.computed = true;
}

float* begin_accumulator(float* registers, int count) {
  TsanIgnore ignore;
  auto& all = me().accumulators;
  auto found = std::find_if(all.begin(), all.end(),
                            [&](const auto& a) { return a->registers == registers; });
  if (found == all.end()) {
    all.push_back(std::make_unique<Accumulator>());
    found = all.end() - 1;
    (*found)->registers = registers;
    (*found)->sums.assign(registers, registers + count);
    std::fill(registers, registers + count, NAN);
  }
  ++(*found)->pending;
  return (*found)->sums.data();
}

void end_accumulator(float* registers) {
  TsanIgnore ignore;
  auto& all = me().accumulators;
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const auto& a) { return a->registers == registers; });
  if (--(*found)->pending > 0) return;
  std::copy((*found)->sums.begin(), (*found)->sums.end(), registers);
  all.erase(found);
}

Landing& landing(const Block& block, std::size_t chunk) {
  return reinterpret_cast<Landing*>(block.arena + kArenaBytes)[chunk];
}

}  // namespace

int group_thread() { return me().id % 128; }

void group_issue(GroupProduct product, Site site) {
  Thread& thread = me();
  if (thread.block->threads.size() % 128 != 0)
    fail("%s at %s:%d: the block has no whole warpgroups", site.what, site.file, site.line);
  if (!thread.group_fenced)
    fail("%s at %s:%d: no warpgroup_fence since the last wait", site.what, site.file, site.line);
  product.sums = begin_accumulator(product.d, product.count);
  product.group = thread.product_group;
  const Config::Async when = config().async;
  const bool now =
      when == Config::eager || (when == Config::mixed && thread.products_issued++ % 2 == 0);
  const bool behind = std::any_of(thread.products.begin(), thread.products.end(),
                                  [](const GroupProduct& p) { return !p.computed; });
  product.touch(product);
  if (now && !behind) compute(product, site);
  TsanIgnore ignore;
  thread.products.push_back(product);
}

void group_fence() { me().group_fenced = true; }
void group_commit() { ++me().product_group; }

void group_wait(int groups_left, Site site) {
  Thread& thread = me();
  thread.group_fenced = false;
  while (!thread.products.empty() &&
         thread.products.front().group < thread.product_group - groups_left) {
    GroupProduct product = thread.products.front();
    {
      TsanIgnore ignore;
      thread.products.erase(thread.products.begin());
    }
    if (!product.computed) compute(product, site);
    end_accumulator(product.d);
  }
}

std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(static_cast<const char*>(pointer) - me().block->arena);
}
void* shared_pointer(std::uint32_t address) { return me().block->arena + address; }

void note_landing(const void* to, int bytes) {
  const Block& block = *me().block;
  const auto first = static_cast<std::size_t>(static_cast<const char*>(to) - block.arena);
  for (std::size_t at = first / 16; at <= (first + static_cast<std::size_t>(bytes) - 1) / 16; ++at)
    landing(block, at) = {block.number, static_cast<std::uint16_t>(me().id), me().proxy_fences};
}

void forget_landing(const void* to, int bytes) {
  const Block& block = *me().block;
  const auto first = static_cast<std::size_t>(static_cast<const char*>(to) - block.arena);
  for (std::size_t at = first / 16; at < (first + static_cast<std::size_t>(bytes)) / 16; ++at)
    landing(block, at) = {};
}

void proxy_fence() { ++me().proxy_fences; }

void check_proxy(std::uint32_t address) {
  const Block& block = *me().block;
  const Landing& last = landing(block, address / 16);
  if (last.block_number != block.number || last.fences == 0) return;
  if (block.threads[last.thread].proxy_fences == last.fences)
    fail(
        "wgmma reads shared address %u, which thread %d has brought or written and not fenced for "
        "the tensor "
        "cores",
        address, last.thread);
}

}  // namespace emulation
