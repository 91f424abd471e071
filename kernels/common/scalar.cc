#include "common/scalar.h"

#include "common/failure.h"

namespace hlo_dispatch {

Scalar ScalarFromAttributes(const Attributes& attributes) {
  using xla::ffi::DataType;
  const std::string type = attributes.Text("type");
  if (type == "f32") return {"s", "s", DataType::F32, DataType::F32, 4};
  if (type == "f64") return {"d", "d", DataType::F64, DataType::F64, 8};
  if (type == "c64") return {"c", "s", DataType::C64, DataType::F32, 8};
  if (type == "c128") return {"z", "d", DataType::C128, DataType::F64, 16};
  Invalid("attribute 'type': expected f32, f64, c64 or c128, got " + type);
}

}  // namespace hlo_dispatch
