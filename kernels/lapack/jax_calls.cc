// LAPACK calls as JAX writes them (lapack_spotrf_ffi and its like), for XLAs that lack jaxlib's handlers of them. Each
// is one of our routines, with matrices in column-major order.
#include "lapack/jax_calls.h"

#include <array>
#include <memory>
#include <utility>

#include "common/failure.h"
#include "common/family.h"
#include "common/ffi.h"
#include "common/ffi_handler.h"
#include "common/provider.h"
#include "common/registry.h"
#include "common/routine.h"
#include "common/stored_attributes.h"

namespace hlo_dispatch::lapack {

namespace {

namespace ffi = xla::ffi;

// A role that ends in * is a vector for each matrix.
struct Call {
  const char* routine;  // ours
  const char* real;     // LAPACK's name
  const char* complex;  // and that of complex matrices
  std::vector<std::string> operands, results, options;
};

const std::array<Call, 7>& Calls() {
  static const auto* calls = new std::array<Call, 7>{{
      {"cholesky", "potrf", "potrf", {"a"}, {"factor", "info*"}, {"uplo"}},
      {"triangular_solve", "trsm", "trsm", {"a", "b"}, {"x"}, {"side", "uplo", "trans_x", "diag"}},
      {"lu", "getrf", "getrf", {"a"}, {"lu", "pivots*", "info*"}, {}},
      {"qr", "geqrf", "geqrf", {"a"}, {"qr", "tau*"}, {}},
      {"householder_product", "orgqr", "ungqr", {"a", "tau*"}, {"q"}, {}},
      {"eigh", "syevd", "heevd", {"a"}, {"v", "w*", "info*"}, {"mode", "uplo"}},
      {"svd", "gesdd", "gesdd", {"a"}, {"destroyed", "s*", "u", "vt", "info*"}, {"mode"}},
  }};
  return *calls;
}

std::string TypeName(ffi::DataType type) {
  switch (type) {
    case ffi::F32:
      return "f32";
    case ffi::F64:
      return "f64";
    case ffi::C64:
      return "c64";
    case ffi::C128:
      return "c128";
    default:
      Invalid("expected matrices of f32, f64, c64 or c128");
  }
}

// The dimensions of one operand or result, and the strides of its order: the last two dimensions of a matrix change
// places.
void Describe(const std::string& role, const ffi::AnyBuffer& buffer, StoredAttributes* attributes) {
  const bool is_vector = role.back() == '*';
  const std::string name = is_vector ? role.substr(0, role.size() - 1) : role;
  const std::vector<int64_t> dims(buffer.dimensions().begin(), buffer.dimensions().end());
  if (!is_vector && dims.size() < 2) Invalid(name + ": expected matrices");
  std::vector<size_t> order;  // from the fastest on
  for (size_t i = dims.size(); i-- > 0;) order.push_back(i);
  if (!is_vector) std::swap(order[0], order[1]);
  std::vector<int64_t> strides(dims.size());
  int64_t stride = 1;
  for (const size_t i : order) {
    strides[i] = stride;
    stride *= dims[i];
  }
  attributes->Set(name + "_dims", dims);
  attributes->Set(name + "_strides", strides);
}

// By oneMKL, or by our own code where that has it and oneMKL is not there.
std::unique_ptr<Routine> MadeRoutine(const Call& call, StoredAttributes* attributes) {
  std::string problem;
  for (const Vendor& vendor : {kMkl, kOwn}) {
    try {
      const std::string name = std::string("hlo_dispatch.") + vendor.folder + "." + call.routine;
      const Kernel& kernel = KernelOf(name);
      attributes->Set("library", Provider::Get(vendor.library).version());
      CheckCall(kernel, *attributes);
      return kernel.make_routine(*attributes);
    } catch (const Failure& failure) {
      if (problem.empty()) problem = failure.what();
    }
  }
  Unavailable(problem);
}

void Run(const Call& call, ffi::ThreadPool& pool, ffi::RemainingArgs& arguments, ffi::RemainingRets& results,
         ffi::Dictionary& options) {
  if (arguments.size() != call.operands.size() || results.size() != call.results.size()) {
    Invalid("expected " + std::to_string(call.operands.size()) + " operands and " +
            std::to_string(call.results.size()) + " results");
  }
  StoredAttributes attributes;
  attributes.Set("abi", kAbi);
  RoutineBuffers buffers;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const ffi::AnyBuffer buffer = *arguments.get<ffi::AnyBuffer>(i);
    if (i == 0) attributes.Set("type", TypeName(buffer.element_type()));
    Describe(call.operands[i], buffer, &attributes);
    buffers.operands.push_back(buffer.untyped_data());
  }
  bool writes = false;
  for (size_t i = 0; i < results.size(); ++i) {
    const ffi::AnyBuffer buffer = **results.get<ffi::AnyBuffer>(i);
    Describe(call.results[i], buffer, &attributes);
    buffers.results.push_back(buffer.untyped_data());
    writes = writes || buffer.size_bytes() > 0;
  }
  for (const std::string& name : call.options) {
    const ffi::ErrorOr<uint8_t> letter = options.get<uint8_t>(name);
    if (!letter.has_value()) Invalid("attribute '" + name + "': expected a letter's code");
    attributes.Set(name, static_cast<int64_t>(*letter));
  }
  if (writes) MadeRoutine(call, &attributes)->Execute(buffers, Parallel(&pool));
}

template <size_t number>
XLA_FFI_Error* Handle(XLA_FFI_CallFrame* frame) {
  static auto* handler = ffi::Ffi::Bind()
                             .Ctx<ffi::ThreadPool>()
                             .RemainingArgs()
                             .RemainingRets()
                             .Attrs()
                             .To([](ffi::ThreadPool pool, ffi::RemainingArgs arguments, ffi::RemainingRets results,
                                    ffi::Dictionary options) {
                               const Call& call = Calls()[number];
                               return Guarded(call.real, [&] { Run(call, pool, arguments, results, options); });
                             })
                             .release();
  return handler->Call(frame);
}

template <size_t... numbers>
std::array<XLA_FFI_Handler*, sizeof...(numbers)> Handlers(std::index_sequence<numbers...>) {
  return {Handle<numbers>...};
}

}  // namespace

std::vector<std::pair<std::string, XLA_FFI_Handler*>> JaxCalls() {
  const auto handlers = Handlers(std::make_index_sequence<7>());
  std::vector<std::pair<std::string, XLA_FFI_Handler*>> calls;
  for (size_t i = 0; i < handlers.size(); ++i) {
    for (const char letter : std::string("sdcz")) {
      const bool is_complex = letter == 'c' || letter == 'z';
      calls.emplace_back(std::string("lapack_") + letter + (is_complex ? Calls()[i].complex : Calls()[i].real) + "_ffi",
                         handlers[i]);
    }
  }
  return calls;
}

}  // namespace hlo_dispatch::lapack
