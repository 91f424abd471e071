// Fields of XLA's messages, and what reads them; dispatch/hlo_dispatch/ir/schema.py has their names.
#ifndef HLO_DISPATCH_PYTHON_MESSAGES_H_
#define HLO_DISPATCH_PYTHON_MESSAGES_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/wire.h"
#include "python/interop.h"

namespace hlo_dispatch::python {

namespace module_field {
constexpr uint64_t kComputations = 3;
}
namespace computation_field {
constexpr uint64_t kName = 1, kInstructions = 2, kId = 5, kRoot = 6;
}
namespace instruction_field {
constexpr uint64_t kName = 1, kOpcode = 2, kShape = 3, kMetadata = 7, kParameterNumber = 9, kId = 35, kOperands = 36,
                   kControlPredecessors = 37, kCalledComputations = 38;
}
namespace shape_field {
constexpr uint64_t kElementType = 2;
}

inline std::string_view View(PyObject* bytes) {
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(bytes, &data, &size) != 0) throw PythonError();
  return {data, static_cast<size_t>(size)};
}

inline std::string_view Text(PyObject* string) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(string, &size);
  if (data == nullptr) throw PythonError();
  return {data, static_cast<size_t>(size)};
}

inline Owned Bytes(std::string_view text) {
  return Checked(PyBytes_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

// The integers of a repeated field, packed or not.
inline void Append(const WireField& field, std::vector<int64_t>* integers) {
  if (field.bytes.data() == nullptr) return integers->push_back(static_cast<int64_t>(field.integer));
  WireReader packed(field.bytes);
  for (int64_t integer = 0; packed.Next(&integer);) integers->push_back(integer);
}

}  // namespace hlo_dispatch::python

#endif  // HLO_DISPATCH_PYTHON_MESSAGES_H_
