// Prepacked weights of cblas_sgemm_pack, in panels of columns, each packed by one thread, for one thread.
//
// oneMKL's format depends on the alignment of the address it was written to, and can be read only from an equally
// aligned one (prepacked_alignment.h). All panels begin at such addresses; a header stores their distance from the
// buffer's beginning.
#ifndef HLO_DISPATCH_ONEMKL_PREPACKED_PANELS_H_
#define HLO_DISPATCH_ONEMKL_PREPACKED_PANELS_H_

#include <cstdint>
#include <memory>

#include "common/parallel.h"
#include "common/prepacked_weights.h"
#include "common/provider.h"
#include "common/rows_and_columns.h"
#include "onemkl/gemm_functions.h"
#include "onemkl/gemm_operand.h"

namespace hlo_dispatch::onemkl {

class PrepackedPanels {
 public:
  // For products of `rows` rows with such weights.
  PrepackedPanels(const Provider& provider, const GemmFunctions& functions, int64_t rows,
                  const RowsAndColumns& weights);

  const PrepackedWeights& prepacked() const { return prepacked_; }
  // Whether they are not much larger than the weights; there is no prepacked() otherwise.
  bool is_worth_its_memory() const { return is_worth_its_memory_; }
  int64_t count() const { return count_; }
  // Panel i has the columns [Begin(i), Begin(i + 1)).
  int64_t Begin(int64_t panel) const;

  // Into a buffer of prepacked().bytes.
  void Prepack(const float* weights, void* buffer, const Parallel& parallel) const;

  // The panels of such a buffer, where they can be read.
  class Reader {
   public:
    // Throws Failure(kInvalid) where the buffer has other contents.
    Reader(const PrepackedPanels& panels, const void* buffer);
    const float* Panel(int64_t panel) const;

   private:
    struct Free {
      void operator()(char* memory) const;
    };
    const PrepackedPanels& panels_;
    std::unique_ptr<char, Free> copy_;  // of panels whose alignment has changed
    const char* first_;
  };

 private:
  int Columns(int64_t panel) const { return static_cast<int>(Begin(panel + 1) - Begin(panel)); }

  const Provider& provider_;
  const GemmFunctions& functions_;
  int rows_;
  RowsAndColumns weights_;
  GemmOperand operand_;
  int64_t width_ = 1;  // of a panel, in columns
  int64_t count_ = 1;
  int64_t panel_bytes_ = 0;
  int64_t alignment_ = 1;
  bool is_worth_its_memory_ = false;
  uint64_t mark_ = 0;  // magic number of the header
  PrepackedWeights prepacked_;
};

}  // namespace hlo_dispatch::onemkl

#endif  // HLO_DISPATCH_ONEMKL_PREPACKED_PANELS_H_
