// out = x · sigmoid(beta · x) · scale[column] + residual, in f32; the last dimension is the row.
// An XLA FFI handler: mine.yaml says where it is called, README.md how it is built and used.
#include <cmath>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using Array = ffi::Buffer<ffi::F32>;

static ffi::Error Compute(Array x, Array scale, Array residual, ffi::Result<Array> out, float beta) {
  const size_t elements = x.element_count(), columns = scale.element_count();
  if (residual.element_count() != elements || out->element_count() != elements || elements % columns != 0)
    return ffi::Error::InvalidArgument("scaled_silu: x, residual and out have the same elements, scale one per column");
  const float *in = x.typed_data(), *factor = scale.typed_data(), *add = residual.typed_data();
  float* to = out->typed_data();
  for (size_t row = 0; row < elements; row += columns)
    for (size_t column = 0; column < columns; ++column) {
      const float value = in[row + column];
      to[row + column] = value / (1.0f + std::exp(-beta * value)) * factor[column] + add[row + column];
    }
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(ScaledSilu, Compute,
                              ffi::Ffi::Bind()
                                  .Arg<Array>()  // x
                                  .Arg<Array>()  // scale
                                  .Arg<Array>()  // residual
                                  .Ret<Array>()
                                  .Attr<float>("beta"));
