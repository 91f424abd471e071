// Products in single precision by oneMKL's gemm, for the kernel itself and for the one that prepacks its weights.
#ifndef HLO_DISPATCH_ONEMKL_GEMM_H_
#define HLO_DISPATCH_ONEMKL_GEMM_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/epilogue.h"
#include "common/provider.h"
#include "common/routine.h"
#include "common/rows_and_columns.h"
#include "common/strided_array.h"
#include "onemkl/gemm_functions.h"
#include "onemkl/gemm_operand.h"
#include "onemkl/prepacked_panels.h"

namespace hlo_dispatch::onemkl {

// As a table, a report and a custom-call name it.
inline constexpr char kGemm[] = "onemkl.gemm", kPack[] = "onemkl.pack";

class Gemm final : public Routine {
 public:
  // Throws Failure(kUnsupported) for what gemm cannot express: other types, several products, elements apart.
  Gemm(const Provider& provider, const Attributes& attributes);
  Gemm(const Gemm&) = delete;  // the panels refer to it
  Gemm& operator=(const Gemm&) = delete;

  std::string implementation() const override;
  const PrepackedWeights* prepacked() const override;
  void Execute(const RoutineBuffers& buffers, const Parallel& parallel) const override;

  // Null where the weights are read plain.
  const PrepackedPanels* panels() const { return panels_.has_value() ? &*panels_ : nullptr; }
  // The call's plain weights.
  const StridedArray& plain_weights() const { return weights_array_; }

 private:
  void MultiplyTile(const float* source, const float* weights, float* values, const Tile& tile) const;
  // So many rows at once that the epilogue finds them in the cache.
  int64_t RowsAtOnce(int64_t columns, int64_t threads) const;

  const Provider& provider_;
  GemmFunctions functions_;
  StridedArray source_array_, weights_array_, destination_array_;
  RowsAndColumns source_, weights_, destination_;
  bool by_row_;  // whether the result is row-major
  GemmOperand source_operand_, weights_operand_, destination_operand_;
  Epilogue epilogue_;
  bool may_be_packed_ = false;
  std::optional<PrepackedPanels> panels_;
};

}  // namespace hlo_dispatch::onemkl

#endif  // HLO_DISPATCH_ONEMKL_GEMM_H_
