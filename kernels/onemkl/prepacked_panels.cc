#include "onemkl/prepacked_panels.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "common/checked.h"
#include "common/failure.h"
#include "common/pool_size.h"
#include "common/rounding.h"
#include "onemkl/prepacked_alignment.h"

namespace hlo_dispatch::onemkl {

namespace {

constexpr int64_t kMinRows = 32;      // of a thread of its own, where rows are shared out
constexpr int64_t kMinColumns = 128;  // likewise columns
constexpr int64_t kColumnGrain = 16;  // a line of the cache
// oneMKL may ask for several megabytes more than the weights have: small ones are not worth that.
constexpr int64_t kMaxTimesLarger = 3;

struct Header {
  uint64_t mark;
  uint64_t distance;  // of the first panel from the buffer's beginning
};
constexpr int64_t kHeaderBytes = 64;

// What oneMKL says of itself, where it chooses among instruction sets.
std::string InstructionsOf(const Provider& provider) {
  struct Version {
    int major, minor, update;
    char *status, *build, *processor, *platform;
  } version{};
  provider.Symbol<void (*)(Version*)>("MKL_Get_Version")(&version);
  constexpr int kAllSettings = -1;
  const int branch = provider.Symbol<int (*)(int)>("MKL_CBWR_Get")(kAllSettings);
  return std::string(version.processor == nullptr ? "?" : version.processor) + ", branch " + std::to_string(branch);
}

uint64_t Hash(const std::string& text) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211u;
  return hash;
}

// Threads have rows of their own where there are enough, and panels of their own otherwise.
int64_t PanelWidth(int64_t rows, int64_t columns) {
  const int64_t threads = PoolThreads();
  const int64_t sharing_rows = std::clamp<int64_t>(rows / kMinRows, 1, threads);
  const int64_t wanted = CeilOfRatio(threads, sharing_rows);
  const int64_t panels = std::clamp<int64_t>(columns / kMinColumns, 1, wanted);
  return RoundUpTo(CeilOfRatio(columns, panels), kColumnGrain);
}

}  // namespace

PrepackedPanels::PrepackedPanels(const Provider& provider, const GemmFunctions& functions, int64_t rows,
                                 const RowsAndColumns& weights)
    : provider_(provider),
      functions_(functions),
      rows_(static_cast<int>(rows)),
      weights_(weights),
      operand_(GemmOperand::Of(weights, /*by_row=*/true, "weights")),
      width_(PanelWidth(rows, weights.columns)),
      count_(CeilOfRatio(weights.columns, width_)) {
  const std::string what = "weights: packed";
  for (int64_t i = 0; i < count_; ++i) {
    const size_t bytes = functions_.packed_bytes(kPackedB, rows_, Columns(i), static_cast<int>(weights_.rows));
    if (bytes == 0 || bytes > static_cast<size_t>(kMaxBytes)) Unsupported(what + ": oneMKL packs no such matrix");
    panel_bytes_ = std::max(panel_bytes_, RoundUpTo(static_cast<int64_t>(bytes), kPage));
  }
  const int64_t plain = weights_.rows * weights_.columns * static_cast<int64_t>(sizeof(float));
  is_worth_its_memory_ = count_ * (panel_bytes_ / kMaxTimesLarger) <= plain;
  if (!is_worth_its_memory_) return;
  for (const int64_t i : {int64_t{0}, count_ - 1}) {
    const int depth = static_cast<int>(weights_.rows);
    alignment_ = std::max(alignment_, PrepackedAlignment(provider_, functions_, rows_, Columns(i), depth));
  }
  panel_bytes_ = RoundUpTo(panel_bytes_, alignment_);
  const int64_t padding =
      Sum(alignment_, kHeaderBytes, what);  // for the head, and up to where the first panel may begin
  prepacked_.bytes = Bytes(Sum(Product(count_, panel_bytes_, what), padding, what), 1, what);
  prepacked_.layout = "f32 " + std::to_string(weights_.rows) + "x" + std::to_string(weights_.columns) +
                      " in panels of " + std::to_string(Begin(1)) + " columns, by sgemm_pack for " +
                      std::to_string(rows_) + " rows, aligned to " + std::to_string(alignment_) + ", on " +
                      InstructionsOf(provider_);
  mark_ = Hash(prepacked_.layout);
}

int64_t PrepackedPanels::Begin(int64_t panel) const { return std::min(panel * width_, weights_.columns); }

void PrepackedPanels::Prepack(const float* weights, void* buffer, const Parallel& parallel) const {
  char* begin = static_cast<char*>(buffer);
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin));
  const int64_t first = RoundUpTo(address + static_cast<int64_t>(sizeof(Header)), alignment_);
  const Header header{mark_, static_cast<uint64_t>(first - address)};
  std::memcpy(begin, &header, sizeof(header));
  parallel.For(count_, 1, [&](int64_t from, int64_t to) {
    const ThreadLimit limit(provider_, 1);
    for (int64_t i = from; i < to; ++i) {
      functions_.pack(kRowMajor, kPackedB, operand_.transpose, rows_, Columns(i), static_cast<int>(weights_.rows), 1.0f,
                      weights_.At(weights, 0, Begin(i)), operand_.leading,
                      reinterpret_cast<float*>(begin + header.distance + i * panel_bytes_));
    }
  });
}

PrepackedPanels::Reader::Reader(const PrepackedPanels& panels, const void* buffer) : panels_(panels) {
  Header header{};
  std::memcpy(&header, buffer, sizeof(header));
  const char* begin = static_cast<const char*>(buffer);
  if (header.mark != panels.mark_ || header.distance < sizeof(header) ||
      header.distance > static_cast<uint64_t>(panels.alignment_ + kHeaderBytes)) {
    Invalid("weights: expected what hlo_dispatch.onemkl.pack wrote as '" + panels.prepacked_.layout +
            "', got something else");
  }
  first_ = begin + header.distance;
  const auto alignment = static_cast<size_t>(panels.alignment_);
  if (reinterpret_cast<uintptr_t>(first_) % alignment == 0) return;
  // They were moved to a buffer that is aligned otherwise.
  const auto bytes = static_cast<size_t>(panels.count_ * panels.panel_bytes_);
  copy_.reset(static_cast<char*>(std::aligned_alloc(alignment, bytes)));
  if (copy_ == nullptr) throw std::bad_alloc();
  std::memcpy(copy_.get(), first_, bytes);
  first_ = copy_.get();
}

const float* PrepackedPanels::Reader::Panel(int64_t panel) const {
  return reinterpret_cast<const float*>(first_ + panel * panels_.panel_bytes_);
}

void PrepackedPanels::Reader::Free::operator()(char* memory) const { std::free(memory); }

}  // namespace hlo_dispatch::onemkl
