#include "onednn/blocked_copy.h"

#include <emmintrin.h>

#include <algorithm>
#include <chrono>

#include "common/rounding.h"

namespace hlo_dispatch::onednn {

namespace {

// So many neighbouring rows of the copy are made before the next block of the row's dimension: their sources are
// as many open lines of memory, read on from block to block.
constexpr int64_t kRowsAtOnce = 16;
constexpr int64_t kBlocksAhead = 2;

// Below this one thread has copied before another is awake.
constexpr int64_t kBytesRepayingThreads = 5 * 512 * 1024;
constexpr int64_t kBytesAtOnce = 64 * 1024;

constexpr int64_t kRowGrain = 8;  // elements; whole vectors of them, as the pairs are

// The vector of elements `from` that has `valid` of them, zeros behind.
template <typename Element>
__m128i Load(const Element* from, int64_t valid) {
  constexpr int64_t kCount = sizeof(__m128i) / sizeof(Element);
  if (valid >= kCount) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  alignas(__m128i) Element vector[kCount];
  for (int64_t i = 0; i < kCount; ++i) vector[i] = i < valid ? from[i] : Element{0};
  return _mm_load_si128(reinterpret_cast<const __m128i*>(vector));
}

template <StoreKind kStores, typename Element>
void Store(Element* to, __m128i vector) {
  if constexpr (kStores == StoreKind::kStreaming) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), vector);
  } else {
    _mm_store_si128(reinterpret_cast<__m128i*>(to), vector);
  }
}

// A row of the copy from one row of the tensor, of which the first `valid` elements exist. `size` is kSize, where
// that is known when this is compiled.
template <int kSize, StoreKind kStores, typename Element>
void CopyRow(const Element* from, Element* to, int64_t size, int64_t valid) {
  constexpr int64_t kCount = sizeof(__m128i) / sizeof(Element);
  if (kSize > 0) size = kSize;
  if (valid == size) {
    for (int64_t i = 0; i < size; i += kCount) Store<kStores>(to + i, Load(from + i, kCount));
  } else {
    for (int64_t i = 0; i < size; i += kCount) Store<kStores>(to + i, Load(from + i, valid - i));
  }
}

// A row of pairs from two rows of the tensor; the second may not exist.
template <int kSize, StoreKind kStores>
void PairRow(const uint16_t* first, const uint16_t* second, uint16_t* to, int64_t size, int64_t valid) {
  auto pair = [&](int64_t i, __m128i a, __m128i b) {
    Store<kStores>(to + 2 * i, _mm_unpacklo_epi16(a, b));
    Store<kStores>(to + 2 * i + 8, _mm_unpackhi_epi16(a, b));
  };
  if (kSize > 0) size = kSize;
  if (valid == size && second != nullptr) {
    for (int64_t i = 0; i < size; i += 8) pair(i, Load(first + i, 8), Load(second + i, 8));
    return;
  }
  for (int64_t i = 0; i < size; i += 8) {
    pair(i, Load(first + i, valid - i), second == nullptr ? _mm_setzero_si128() : Load(second + i, valid - i));
  }
}

// Prefetches a row; an invalid address does no harm.
template <int kSize, typename Element>
void Prefetch(const Element* row) {
  const auto at = reinterpret_cast<uintptr_t>(row);
  constexpr size_t kBytes = (kSize > 0 ? kSize : 1) * sizeof(Element), kLine = 64;
  for (size_t offset = 0; offset < kBytes; offset += kLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(at + offset));
  }
}

}  // namespace

std::optional<BlockedCopy> BlockedCopy::Plan(const Tensor& tensor, const BlockedLayout& layout, size_t reversed) {
  std::vector<BlockedLayout::Block> blocks = layout.blocks;
  if (blocks.empty()) return std::nullopt;
  BlockedCopy copy;
  copy.dims_ = tensor.dims;
  copy.strides_ = tensor.strides;
  copy.element_bytes_ = ElementBytes(tensor.type);
  for (size_t i = tensor.dims.size() - reversed; i < tensor.dims.size(); ++i) {
    copy.origin_ += (tensor.dims[i] - 1) * tensor.strides[i];
    copy.strides_[i] = -tensor.strides[i];
  }
  int64_t inside = 1;  // elements within one step of the block at hand
  if (blocks.size() > 1 && blocks.back().size == 2 && copy.element_bytes_ == 2) {
    copy.pair_ = blocks.back().dimension;
    inside = 2;
    blocks.pop_back();
  }
  copy.row_ = blocks.back().dimension;
  copy.row_size_ = blocks.back().size;
  inside *= copy.row_size_;
  blocks.pop_back();
  if (copy.pair_ == copy.row_ || copy.row_size_ % kRowGrain != 0) return std::nullopt;
  if (copy.strides_[copy.row_] != 1 && copy.dims_[copy.row_] != 1) return std::nullopt;

  std::vector<int64_t> steps(tensor.dims.size(), 1);  // of each dimension's index, from block to block
  steps[copy.row_] = copy.row_size_;
  if (copy.pair_.has_value()) steps[*copy.pair_] = 2;
  std::vector<Loop> loops;
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    loops.push_back({block->dimension, block->size, steps[block->dimension], inside});
    steps[block->dimension] *= block->size;
    inside *= block->size;
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    const Loop loop{i, layout.padded[i] / steps[i], steps[i], layout.strides[i]};
    if (i == copy.row_) {
      copy.across_ = loop;
    } else {
      loops.push_back(loop);
    }
  }
  std::sort(loops.begin(), loops.end(), [](const Loop& a, const Loop& b) { return a.stride > b.stride; });
  const auto along = std::find_if(loops.rbegin(), loops.rend(),
                                  [&](const Loop& loop) { return loop.dimension != copy.row_ && loop.count > 1; });
  copy.along_.dimension = copy.row_ == 0 ? 1 : 0;
  if (along != loops.rend()) {
    copy.along_ = *along;
    loops.erase(std::next(along).base());
  }
  copy.outer_ = std::move(loops);
  copy.pieces_ = CeilOfRatio(copy.along_.count, kRowsAtOnce);
  for (const Loop& loop : copy.outer_) copy.pieces_ *= loop.count;
  const int64_t row_bytes = copy.row_size_ * copy.element_bytes_ * (copy.pair_.has_value() ? 2 : 1);
  copy.piece_bytes_ = std::min(copy.along_.count, kRowsAtOnce) * copy.across_.count * row_bytes;
  return copy.dims_.size() > 1 ? std::optional<BlockedCopy>(std::move(copy)) : std::nullopt;
}

// Where a piece begins: the index in every dimension and both offsets of its first row; its rows.
struct BlockedCopy::Place {
  std::vector<int64_t> index;
  int64_t from = 0, to = 0;
  int64_t first = 0, last = 0;
  int64_t existing = 0;  // up to this row the tensor has something to copy
  int64_t paired = 0;    // up to this row it has both halves of the pairs
};

BlockedCopy::Place BlockedCopy::At(int64_t piece) const {
  Place place;
  place.index.assign(dims_.size(), 0);
  const int64_t chunks = CeilOfRatio(along_.count, kRowsAtOnce);
  place.first = piece % chunks * kRowsAtOnce;
  place.last = std::min(along_.count, place.first + kRowsAtOnce);
  piece /= chunks;
  for (auto loop = outer_.rbegin(); loop != outer_.rend(); ++loop) {
    const int64_t at = piece % loop->count;
    place.index[loop->dimension] += at * loop->step;
    place.to += at * loop->stride;
    piece /= loop->count;
  }
  bool exists = true;
  for (size_t i = 0; i < dims_.size(); ++i) {
    place.from += place.index[i] * strides_[i];
    exists = exists && (i == row_ || place.index[i] < dims_[i]);
  }
  // How many rows along, from row 0 of the piece's place, have an index below the size.
  auto below = [&](int64_t size) {
    const int64_t left = size - place.index[along_.dimension];
    if (left <= 0) return int64_t{0};
    return along_.step == 0 ? along_.count : CeilOfRatio(left, along_.step);
  };
  place.existing = exists ? below(dims_[along_.dimension]) : 0;
  place.paired = along_.count;
  if (pair_ == along_.dimension) {
    place.paired = below(dims_[*pair_] - 1);
  } else if (pair_.has_value() && place.index[*pair_] + 1 >= dims_[*pair_]) {
    place.paired = 0;
  }
  place.from += place.first * along_.step * strides_[along_.dimension];
  place.to += place.first * along_.stride;
  return place;
}

template <typename Element, int kSize, StoreKind kStores>
void BlockedCopy::CopyPieces(int64_t begin, int64_t end, const Element* from, Element* to) const {
  const int64_t along_step = along_.step * strides_[along_.dimension];
  const int64_t pair_step = pair_.has_value() ? strides_[*pair_] : 0;
  for (int64_t piece = begin; piece < end; ++piece) {
    const Place place = At(piece);
    for (int64_t block = 0; block < across_.count; ++block) {
      const int64_t at = place.index[row_] + block * across_.step;
      const int64_t valid = std::clamp<int64_t>(dims_[row_] - at, 0, row_size_);
      const Element* source = from + place.from + block * across_.step;
      Element* target = to + place.to + block * across_.stride;
      for (int64_t row = place.first; row < place.last; ++row, source += along_step, target += along_.stride) {
        const int64_t present = row < place.existing ? valid : 0;
        Prefetch<kSize>(source + kBlocksAhead * row_size_);
        if constexpr (sizeof(Element) == 2) {
          if (pair_.has_value()) {
            const Element* second = row < place.paired ? source + pair_step : nullptr;
            Prefetch<kSize>(source + pair_step + kBlocksAhead * row_size_);
            PairRow<kSize, kStores>(source, second, target, row_size_, present);
            continue;
          }
        }
        CopyRow<kSize, kStores>(source, target, row_size_, present);
      }
    }
  }
  if constexpr (kStores == StoreKind::kStreaming) _mm_sfence();  // before other threads learn that the copy is done
}

template <typename Element, StoreKind kStores>
void BlockedCopy::CopyWith(const Element* from, Element* to, const Parallel& parallel) const {
  const bool shared = piece_bytes_ * pieces_ >= kBytesRepayingThreads;
  const int64_t grain = shared ? std::max<int64_t>(1, kBytesAtOnce / piece_bytes_) : pieces_;
  parallel.For(pieces_, grain, [&](int64_t begin, int64_t end) {
    switch (row_size_) {
      case 16:
        return CopyPieces<Element, 16, kStores>(begin, end, from, to);
      case 32:
        return CopyPieces<Element, 32, kStores>(begin, end, from, to);
      case 48:
        return CopyPieces<Element, 48, kStores>(begin, end, from, to);
      case 64:
        return CopyPieces<Element, 64, kStores>(begin, end, from, to);
      default:
        return CopyPieces<Element, 0, kStores>(begin, end, from, to);
    }
  });
}

template <typename Element>
void BlockedCopy::CopyWhole(const Element* from, Element* to, const Parallel& parallel) const {
  using Clock = std::chrono::steady_clock;
  const StoreChoice::Turn turn = stores_->Next(piece_bytes_ * pieces_);
  const Clock::time_point begin = Clock::now();
  if (turn.kind == StoreKind::kStreaming) {
    CopyWith<Element, StoreKind::kStreaming>(from, to, parallel);
  } else {
    CopyWith<Element, StoreKind::kOrdinary>(from, to, parallel);
  }
  stores_->Took(turn, std::chrono::duration<double>(Clock::now() - begin).count());
}

void BlockedCopy::Run(const void* from, void* to, const Parallel& parallel) const {
  if (element_bytes_ == 2) {
    CopyWhole(static_cast<const uint16_t*>(from) + origin_, static_cast<uint16_t*>(to), parallel);
  } else {
    CopyWhole(static_cast<const uint32_t*>(from) + origin_, static_cast<uint32_t*>(to), parallel);
  }
}

}  // namespace hlo_dispatch::onednn
