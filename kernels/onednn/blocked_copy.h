// Copies a plain tensor into one of oneDNN's blocked layouts, on XLA's threads.
//
// oneDNN's own reorder does the same, but costs a submission to its runtime (some 10 us), and moves weights in half
// precision at 7 to 13 GB/s by two threads, where this does at 30 by one (Zen 5, weights in the caches).
#ifndef HLO_DISPATCH_ONEDNN_BLOCKED_COPY_H_
#define HLO_DISPATCH_ONEDNN_BLOCKED_COPY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/parallel.h"
#include "onednn/blocked_layout.h"
#include "onednn/memory.h"
#include "onednn/store_choice.h"

namespace hlo_dispatch::onednn {

class BlockedCopy {
 public:
  // Nothing unless the innermost block goes along a dimension in which the tensor is dense, with nothing inside of it
  // but, in half precision, pairs of another dimension: then all there is to do is to copy or to interleave rows. The
  // last `reversed` dimensions are reversed.
  static std::optional<BlockedCopy> Plan(const Tensor& tensor, const BlockedLayout& layout, size_t reversed);

  // Padding becomes zero.
  void Run(const void* from, void* to, const Parallel& parallel) const;

 private:
  struct Loop {
    size_t dimension = 0;
    int64_t count = 1;
    int64_t step = 0;    // in the tensor's index
    int64_t stride = 0;  // in the copy, in elements
  };
  struct Place;

  BlockedCopy() = default;
  Place At(int64_t piece) const;
  template <typename Element, int kSize, StoreKind kStores>
  void CopyPieces(int64_t begin, int64_t end, const Element* from, Element* to) const;
  template <typename Element, StoreKind kStores>
  void CopyWith(const Element* from, Element* to, const Parallel& parallel) const;
  template <typename Element>
  void CopyWhole(const Element* from, Element* to, const Parallel& parallel) const;

  std::vector<int64_t> dims_, strides_;  // of the tensor; negative strides where it is reversed
  int64_t origin_ = 0;                   // offset of its first element
  int64_t element_bytes_ = 0;
  size_t row_ = 0;  // the dimension of the innermost block
  int64_t row_size_ = 0;
  std::optional<size_t> pair_;  // the dimension whose pairs are inside of it
  std::vector<Loop> outer_;
  Loop across_;                           // over the blocks of the row's dimension
  Loop along_;                            // over neighbouring rows of the copy
  int64_t pieces_ = 0, piece_bytes_ = 0;  // the unit of work that threads share
  std::unique_ptr<StoreChoice> stores_ = std::make_unique<StoreChoice>();
};

}  // namespace hlo_dispatch::onednn

#endif  // HLO_DISPATCH_ONEDNN_BLOCKED_COPY_H_
