// The handler that the table of patterns/examples names, without XLA's C++ headers, which take seconds to compile.
#include <cmath>

#include "xla/ffi/api/c_api.h"

namespace {

const float* Data(const XLA_FFI_CallFrame* f, int i) {
  return static_cast<float*>(static_cast<XLA_FFI_Buffer*>(f->args.args[i])->data);
}
}  // namespace

extern "C" XLA_FFI_Error* ScaledSilu(XLA_FFI_CallFrame* frame) {
  if (auto* extension = frame->extension_start; extension && extension->type == XLA_FFI_Extension_Metadata) {
    auto* metadata = reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension)->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = 3;  // a runtime may be older than these headers
    return nullptr;
  }
  auto* out = static_cast<XLA_FFI_Buffer*>(frame->rets.rets[0]);
  const auto* scalar = static_cast<XLA_FFI_Scalar*>(frame->attrs.attrs[0]);
  const float beta = *static_cast<float*>(scalar->value);
  const float *x = Data(frame, 0), *scale = Data(frame, 1), *residual = Data(frame, 2);
  int64_t size = 1, columns = out->dims[out->rank - 1];
  for (int64_t i = 0; i < out->rank; ++i) size *= out->dims[i];
  for (int64_t i = 0; i < size; ++i)
    static_cast<float*>(out->data)[i] = x[i] / (1 + std::exp(-beta * x[i])) * scale[i % columns] + residual[i];
  return nullptr;
}
