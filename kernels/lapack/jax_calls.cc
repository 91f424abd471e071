// LAPACK calls as JAX writes them (lapack_spotrf_ffi and its like), for XLAs that lack jaxlib's handlers of them. Each
// is one of our routines, or one that only JAX calls (jax_only_calls.h), with matrices in column-major order.
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
#include "lapack/jax_only_calls.h"

namespace hlo_dispatch::lapack {

namespace {

namespace ffi = xla::ffi;

// A role that ends in * is a vector for each matrix, or a number.
struct Call {
  const char* routine;  // ours; null: `run` computes it, by oneMKL, or by our own code where LAPACK has no such name
  const char* real;     // LAPACK's name
  const char* complex;  // and that of complex matrices; null: the target has this name for every type
  std::vector<std::string> operands, results, options;
  void (*run)(const JaxCall&) = nullptr;
  std::vector<std::string> complex_results = {};  // where there are others
};

constexpr size_t kCalls = 16;

const std::array<Call, kCalls>& Calls() {
  static const auto* calls = new std::array<Call, kCalls>{{
      {"cholesky", "potrf", "potrf", {"a"}, {"factor", "info*"}, {"uplo"}},
      {"triangular_solve", "trsm", "trsm", {"a", "b"}, {"x"}, {"side", "uplo", "trans_x", "diag"}},
      {"lu", "getrf", "getrf", {"a"}, {"lu", "pivots*", "info*"}, {}},
      {"qr", "geqrf", "geqrf", {"a"}, {"qr", "tau*"}, {}},
      {"householder_product", "orgqr", "ungqr", {"a", "tau*"}, {"q"}, {}},
      {"eigh", "syevd", "heevd", {"a"}, {"v", "w*", "info*"}, {"mode", "uplo"}},
      {"svd", "gesdd", "gesdd", {"a"}, {"destroyed", "s*", "u", "vt", "info*"}, {"mode"}},
      {nullptr, "geqp3", "geqp3", {"a", "fixed*"}, {"qr", "pivots*", "tau*"}, {}, PivotedQr},
      {nullptr, "ormqr", "unmqr", {"a", "tau*", "c"}, {"product"}, {"left", "transpose"}, MultiplyByQ},
      {nullptr, "gesvd", "gesvd", {"a"}, {"destroyed", "s*", "u", "vt", "info*"}, {"mode"}, SvdByQrIteration},
      {nullptr,
       "geev",
       "geev",
       {"a"},
       {"w*", "wi*", "left", "right", "info*"},
       {"compute_left", "compute_right"},
       Eig,
       {"w*", "left", "right", "info*"}},
      {nullptr,
       "gees",
       "gees",
       {"a"},
       {"form", "vectors", "w*", "wi*", "selected*", "info*"},
       {"mode", "sort"},
       Schur,
       {"form", "vectors", "w*", "selected*", "info*"}},
      {nullptr, "gehrd", "gehrd", {"a"}, {"form", "tau*", "info*"}, {"low", "high"}, Hessenberg},
      {nullptr, "sytrd", "hetrd", {"a"}, {"form", "d*", "e*", "tau*", "info*"}, {"uplo"}, Tridiagonal},
      {nullptr,
       "gtsv",
       "gtsv",
       {"dl*", "d*", "du*", "b"},
       {"dl_out*", "d_out*", "du_out*", "x", "info*"},
       {},
       TridiagonalSolve},
      {nullptr,
       "tridiagonal_solve_perturbed_ffi",
       nullptr,
       {"dl*", "d*", "du*", "b"},
       {"x"},
       {},
       PerturbedTridiagonalSolve},
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

bool IsComplex(const ffi::AnyBuffer& buffer) {
  return buffer.element_type() == ffi::C64 || buffer.element_type() == ffi::C128;
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

// A letter's code, a number or a truth value.
int64_t OptionOf(const ffi::Dictionary& options, const std::string& name) {
  if (const ffi::ErrorOr<uint8_t> letter = options.get<uint8_t>(name); letter.has_value()) return *letter;
  if (const ffi::ErrorOr<int32_t> number = options.get<int32_t>(name); number.has_value()) return *number;
  if (const ffi::ErrorOr<bool> truth = options.get<bool>(name); truth.has_value()) return *truth ? 1 : 0;
  Invalid("attribute '" + name + "': expected a letter's code, a number or a truth value");
}

void Run(const Call& call, ffi::ThreadPool& pool, ffi::RemainingArgs& arguments, ffi::RemainingRets& results,
         ffi::Dictionary& options) {
  const bool is_complex = arguments.size() > 0 && IsComplex(*arguments.get<ffi::AnyBuffer>(0));
  const std::vector<std::string>& roles =
      is_complex && !call.complex_results.empty() ? call.complex_results : call.results;
  if (arguments.size() != call.operands.size() || results.size() != roles.size()) {
    Invalid("expected " + std::to_string(call.operands.size()) + " operands and " + std::to_string(roles.size()) +
            " results");
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
    Describe(roles[i], buffer, &attributes);
    buffers.results.push_back(buffer.untyped_data());
    writes = writes || buffer.size_bytes() > 0;
  }
  for (const std::string& name : call.options) attributes.Set(name, OptionOf(options, name));
  if (!writes) return;
  const Parallel parallel(&pool);
  if (call.run != nullptr) {
    call.run({Provider::Get(call.complex == nullptr ? kOwnName : kMklName), attributes, buffers, parallel});
  } else {
    MadeRoutine(call, &attributes)->Execute(buffers, parallel);
  }
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
  const auto handlers = Handlers(std::make_index_sequence<kCalls>());
  std::vector<std::pair<std::string, XLA_FFI_Handler*>> calls;
  for (size_t i = 0; i < handlers.size(); ++i) {
    if (Calls()[i].complex == nullptr) {
      calls.emplace_back(Calls()[i].real, handlers[i]);
      continue;
    }
    for (const char letter : std::string("sdcz")) {
      const bool is_complex = letter == 'c' || letter == 'z';
      calls.emplace_back(std::string("lapack_") + letter + (is_complex ? Calls()[i].complex : Calls()[i].real) + "_ffi",
                         handlers[i]);
    }
  }
  return calls;
}

}  // namespace hlo_dispatch::lapack
