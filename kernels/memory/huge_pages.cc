// hlo_dispatch.own.huge_pages
//
//   dst_0, dst_1, … are not written, and nobody reads them
//
// Huge-page advice for the buffers of a program that are allocated anew for each run (common/huge_pages.h). The call is
// the program's first instruction, and its results are dead at once: XLA's buffer assignment places them where other
// values are written afterwards, one in the temporary buffer and one in each large result of the program.
#include <string>
#include <vector>

#include "common/failure.h"
#include "common/family.h"
#include "common/huge_pages.h"
#include "common/routine.h"

namespace hlo_dispatch::memory {

namespace {

class HugePages final : public Routine {
 public:
  HugePages(const Provider&, const Attributes& attributes) {
    for (const int64_t bytes : attributes.Integers("bytes")) {
      if (bytes < 0) Invalid("attribute 'bytes': expected at least 0, got " + std::to_string(bytes));
      results_.push_back({"dst_" + std::to_string(results_.size()), xla::ffi::U8, bytes});
    }
  }

  std::string implementation() const override { return "madvise"; }

  void Execute(const RoutineBuffers& buffers, const Parallel&) const override {
    for (size_t i = 0; i < results_.size(); ++i) AdviseHugePages(buffers.results[i], results_[i].bytes);
  }
};

const Family<HugePages, kOwnEverywhere> family("huge_pages");

}  // namespace

}  // namespace hlo_dispatch::memory
