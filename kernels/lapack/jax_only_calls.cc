#include "lapack/jax_only_calls.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/checked.h"
#include "common/failure.h"
#include "lapack/batch.h"
#include "lapack/matrix.h"
#include "lapack/options.h"
#include "lapack/workspace.h"

namespace hlo_dispatch::lapack {

namespace {

// Index of no matrix: the routine is asked for the size of its working memory.
constexpr int64_t kQuery = -1;
// What JAX takes for a failure of geev: the matrix has an infinity or a NaN, for which LAPACK may never end.
constexpr int kNotFinite = -4;
constexpr void* kNothing = nullptr;

int Leading(int64_t rows) { return static_cast<int>(std::max<int64_t>(1, rows)); }

// A Fortran routine, all of whose arguments are addresses.
class Function {
 public:
  explicit Function(void* address) : address_(address) {}
  template <typename... Arguments>
  void operator()(Arguments... arguments) const {
    reinterpret_cast<void (*)(Arguments...)>(address_)(arguments...);
  }

 private:
  void* address_;
};

// What each matrix of a batch has in a buffer.
struct Part {
  char* data;
  int64_t bytes;  // of each
  char* operator()(int64_t i) const { return i == kQuery ? nullptr : data + i * bytes; }
};

struct Work {
  void* data;
  const int* size;
  void* real;
};

// The batch of a call, seen from the matrix whose routine it is.
class Batch {
 public:
  Batch(const JaxCall& call, const std::string& matrix)
      : call_(call), matrix_(MatrixFromAttributes(call.attributes, matrix)) {}

  const Scalar& scalar() const { return matrix_.scalar; }
  bool is_complex() const { return scalar().is_complex(); }
  int rows() const { return static_cast<int>(matrix_.rows); }
  int columns() const { return static_cast<int>(matrix_.columns); }
  char Letter(const std::string& option, const std::string& letters) const {
    return Option(call_.attributes, option, letters);
  }
  int Number(const std::string& option) const { return static_cast<int>(call_.attributes.Integer(option)); }

  Function Routine(const std::string& real, const std::string& complex) const {
    return Function(call_.provider.Get<void*>(scalar().prefix, is_complex() ? complex : real));
  }

  Part Operand(size_t number, const std::string& role, int64_t elements) const {
    CheckElements(role, elements);
    return {static_cast<char*>(const_cast<void*>(call_.buffers.operands[number])), elements * scalar().bytes};
  }
  Part Result(size_t number, const std::string& role, int64_t elements, int64_t bytes_each) const {
    CheckElements(role, elements);
    return {static_cast<char*>(call_.buffers.results[number]), elements * bytes_each};
  }
  Part Result(size_t number, const std::string& role, int64_t elements) const {
    return Result(number, role, elements, scalar().bytes);
  }
  Part RealResult(size_t number, const std::string& role, int64_t elements) const {
    return Result(number, role, elements, scalar().real_bytes());
  }
  Part IntegerResult(size_t number, const std::string& role, int64_t elements) const {
    return Result(number, role, elements, sizeof(int));
  }
  // A result that begins as an operand of the same size, whose buffer it may have.
  Part Overwritten(size_t operand, const std::string& operand_role, size_t result, const std::string& role,
                   int64_t elements, int64_t bytes_each) const {
    CheckElements(operand_role, elements);
    const Part part = Result(result, role, elements, bytes_each);
    const void* source = call_.buffers.operands[operand];
    if (source != part.data) std::memcpy(part.data, source, static_cast<size_t>(matrix_.batch() * part.bytes));
    return part;
  }
  Part Overwritten(size_t operand, const std::string& operand_role, size_t result, const std::string& role,
                   int64_t elements) const {
    return Overwritten(operand, operand_role, result, role, elements, scalar().bytes);
  }

  // Calls body(i, work), which returns the routine's info, for each matrix; before that for kQuery. `infos` null: the
  // program is not told.
  template <typename Body>
  void ForEach(int64_t real_elements, const Part* infos, const Body& body) const {
    const int size = WorkSize(scalar(), [&](void* answer, const int* query) {
      double real = 0;
      return body(kQuery, Work{answer, query, &real});
    });
    ForBatch(call_.provider, matrix_, call_.parallel, [&](int64_t i, const Parallel&) {
      const Workspace work(size, scalar().bytes), real(real_elements, scalar().real_bytes());
      const int info = body(i, Work{work.data(), work.size(), real.data()});
      if (infos == nullptr) {
        CheckInfo("LAPACK", info);
      } else {
        std::memcpy((*infos)(i), &info, sizeof(info));
      }
    });
  }

  // The routine's info; behind the arguments come working memory and info, between which complex routines have real
  // working memory.
  template <typename... Arguments>
  int Call(const Function& routine, const Work& work, Arguments... arguments) const {
    int info = 0;
    if (is_complex()) {
      routine(arguments..., work.data, work.size, work.real, &info);
    } else {
      routine(arguments..., work.data, work.size, &info);
    }
    return info;
  }
  // The same where complex routines have none.
  template <typename... Arguments>
  static int CallAlike(const Function& routine, const Work& work, Arguments... arguments) {
    int info = 0;
    routine(arguments..., work.data, work.size, &info);
    return info;
  }

 private:
  void CheckElements(const std::string& role, int64_t elements) const {
    const std::string what = "attribute '" + role + "_dims'";
    const int64_t expected = Product(matrix_.batch(), elements, what);
    const int64_t count = Elements(call_.attributes.Integers(role + "_dims"), what);
    if (count != expected) {
      Invalid(role + ": expected " + std::to_string(expected) + " elements, got " + std::to_string(count));
    }
  }

  const JaxCall& call_;
  Matrix matrix_;
};

int64_t Square(int n) { return static_cast<int64_t>(n) * n; }

template <typename Real>
bool IsFinite(const void* values, int64_t count) {
  const auto* reals = static_cast<const Real*>(values);
  return std::all_of(reals, reals + count, [](Real value) { return std::isfinite(value); });
}

// Vectors as geev gives them for a real matrix: of a pair of conjugate eigenvalues the real parts, then the imaginary
// ones.
template <typename Real>
void UnpackVectors(int n, const void* imaginary_values, const void* packed, void* unpacked) {
  const auto* imaginary = static_cast<const Real*>(imaginary_values);
  const auto* from = static_cast<const Real*>(packed);
  auto* to = static_cast<std::complex<Real>*>(unpacked);
  for (int64_t j = 0; j < n; ++j, from += n, to += n) {
    if (imaginary[j] == 0 || j + 1 == n) {
      std::copy(from, from + n, to);
      continue;
    }
    for (int64_t i = 0; i < n; ++i) {
      to[i] = {from[i], from[n + i]};
      to[n + i] = {from[i], -from[n + i]};
    }
    ++j;
    from += n;
    to += n;
  }
}

}  // namespace

void PivotedQr(const JaxCall& call) {
  const Batch batch(call, "a");
  const int m = batch.rows(), n = batch.columns(), lda = Leading(m);
  const Part a = batch.Overwritten(0, "a", 0, "qr", static_cast<int64_t>(m) * n);
  const Part pivots = batch.Overwritten(1, "fixed", 1, "pivots", n, sizeof(int));
  const Part tau = batch.Result(2, "tau", std::min(m, n));
  const Function geqp3 = batch.Routine("geqp3", "geqp3");
  batch.ForEach(2 * static_cast<int64_t>(n), nullptr, [&](int64_t i, const Work& work) {
    return batch.Call(geqp3, work, &m, &n, a(i), &lda, pivots(i), tau(i));
  });
}

void MultiplyByQ(const JaxCall& call) {
  const Batch batch(call, "c");
  const int m = batch.rows(), n = batch.columns(), ldc = Leading(m);
  const Matrix reflectors = MatrixFromAttributes(call.attributes, "a");
  const bool left = batch.Number("left") != 0;
  const char side = left ? 'L' : 'R';
  const char transposed = batch.Number("transpose") == 0 ? 'N' : batch.is_complex() ? 'C' : 'T';
  const int lda = Leading(reflectors.rows);
  const std::vector<int64_t> tau_dims = call.attributes.Integers("tau_dims");
  const int64_t count = tau_dims.empty() ? 0 : tau_dims.back();
  if (reflectors.rows != (left ? m : n) || count > reflectors.columns || count > reflectors.rows) {
    Invalid("expected reflectors as long as the matrix that they multiply, and no more of them than they are long");
  }
  const int k = static_cast<int>(count);
  const Part a = batch.Operand(0, "a", reflectors.rows * reflectors.columns), tau = batch.Operand(1, "tau", k);
  const Part c = batch.Overwritten(2, "c", 0, "product", static_cast<int64_t>(m) * n);
  const Function ormqr = batch.Routine("ormqr", "unmqr");
  batch.ForEach(1, nullptr, [&](int64_t i, const Work& work) {
    // LAPACK writes into the reflectors and restores them: another thread may be reading the operand.
    std::vector<char> own;
    if (i != kQuery) own.assign(a(i), a(i) + a.bytes);
    return Batch::CallAlike(ormqr, work, &side, &transposed, &m, &n, &k, own.data(), &lda, tau(i), c(i), &ldc);
  });
}

void SvdByQrIteration(const JaxCall& call) {
  const Batch batch(call, "a");
  const int m = batch.rows(), n = batch.columns(), lda = Leading(m);
  const char mode = batch.Letter("mode", "ASN");
  const int values = std::min(m, n);
  const Matrix left = MatrixFromAttributes(call.attributes, "u"), right = MatrixFromAttributes(call.attributes, "vt");
  const int ldu = Leading(left.rows), ldvt = Leading(right.rows);
  if (mode != 'N') {
    CheckSize(left, m, mode == 'A' ? m : values);
    CheckSize(right, mode == 'A' ? n : values, n);
  }
  const Part a = batch.Overwritten(0, "a", 0, "destroyed", static_cast<int64_t>(m) * n);
  const Part s = batch.RealResult(1, "s", values), u = batch.Result(2, "u", left.rows * left.columns);
  const Part vt = batch.Result(3, "vt", right.rows * right.columns), infos = batch.IntegerResult(4, "info", 1);
  const Function gesvd = batch.Routine("gesvd", "gesvd");
  batch.ForEach(5 * static_cast<int64_t>(values), &infos, [&](int64_t i, const Work& work) {
    return batch.Call(gesvd, work, &mode, &mode, &m, &n, a(i), &lda, s(i), u(i), &ldu, vt(i), &ldvt);
  });
}

void Eig(const JaxCall& call) {
  const Batch batch(call, "a");
  const int n = batch.columns(), lda = Leading(n);
  const int64_t square = Square(n);
  const char left_mode = batch.Letter("compute_left", "NV"), right_mode = batch.Letter("compute_right", "NV");
  const int64_t complex_bytes = 2 * batch.scalar().real_bytes();
  const size_t first = batch.is_complex() ? 1 : 2;  // result behind the eigenvalues
  const Part a = batch.Operand(0, "a", square);     // which makes it a square matrix
  const Part w = batch.Result(0, "w", n), imaginary = batch.is_complex() ? w : batch.Result(1, "wi", n);
  const Part left = batch.Result(first, "left", square, complex_bytes);
  const Part right = batch.Result(first + 1, "right", square, complex_bytes);
  const Part infos = batch.IntegerResult(first + 2, "info", 1);
  const bool is_single = batch.scalar().real_bytes() == 4;
  const Function geev = batch.Routine("geev", "geev");
  batch.ForEach(2 * static_cast<int64_t>(n), &infos, [&](int64_t i, const Work& work) {
    const auto bytes = static_cast<size_t>(a.bytes);
    const std::unique_ptr<char[]> memory(new char[3 * bytes + 1]);
    char *destroyed = memory.get(), *packed_left = destroyed + bytes, *packed_right = packed_left + bytes;
    if (i != kQuery) {
      std::memcpy(destroyed, a(i), bytes);
      const int64_t reals = batch.is_complex() ? 2 * square : square;
      if (!(is_single ? IsFinite<float> : IsFinite<double>)(destroyed, reals)) return kNotFinite;
    }
    if (batch.is_complex()) {
      return batch.Call(geev, work, &left_mode, &right_mode, &n, destroyed, &lda, w(i), left(i), &lda, right(i), &lda);
    }
    const int info = batch.Call(geev, work, &left_mode, &right_mode, &n, destroyed, &lda, w(i), imaginary(i),
                                packed_left, &lda, packed_right, &lda);
    if (i == kQuery || info != 0) return info;
    const auto unpack = is_single ? UnpackVectors<float> : UnpackVectors<double>;
    if (left_mode == 'V') unpack(n, imaginary(i), packed_left, left(i));
    if (right_mode == 'V') unpack(n, imaginary(i), packed_right, right(i));
    return info;
  });
}

void Schur(const JaxCall& call) {
  const Batch batch(call, "a");
  const int n = batch.columns(), lda = Leading(n);
  const int64_t square = Square(n);
  const char mode = batch.Letter("mode", "NV"), sort = batch.Letter("sort", "N");
  const size_t first = batch.is_complex() ? 3 : 4;  // result behind the eigenvalues
  const Part a = batch.Overwritten(0, "a", 0, "form", square), vectors = batch.Result(1, "vectors", square);
  const Part w = batch.Result(2, "w", n), imaginary = batch.is_complex() ? w : batch.Result(3, "wi", n);
  const Part selected = batch.IntegerResult(first, "selected", 1), infos = batch.IntegerResult(first + 1, "info", 1);
  const Function gees = batch.Routine("gees", "gees");
  batch.ForEach(n, &infos, [&](int64_t i, const Work& work) {
    int info = 0, count = 0;
    if (batch.is_complex()) {
      gees(&mode, &sort, kNothing, &n, a(i), &lda, &count, w(i), vectors(i), &lda, work.data, work.size, work.real,
           kNothing, &info);
    } else {
      gees(&mode, &sort, kNothing, &n, a(i), &lda, &count, w(i), imaginary(i), vectors(i), &lda, work.data, work.size,
           kNothing, &info);
    }
    if (i != kQuery) std::memcpy(selected(i), &count, sizeof(count));
    return info;
  });
}

void Hessenberg(const JaxCall& call) {
  const Batch batch(call, "a");
  const int n = batch.columns(), lda = Leading(n);
  const int low = batch.Number("low"), high = batch.Number("high");
  const Part a = batch.Overwritten(0, "a", 0, "form", Square(n)), tau = batch.Result(1, "tau", std::max(n - 1, 0));
  const Part infos = batch.IntegerResult(2, "info", 1);
  const Function gehrd = batch.Routine("gehrd", "gehrd");
  batch.ForEach(1, &infos, [&](int64_t i, const Work& work) {
    return Batch::CallAlike(gehrd, work, &n, &low, &high, a(i), &lda, tau(i));
  });
}

void Tridiagonal(const JaxCall& call) {
  const Batch batch(call, "a");
  const int n = batch.columns(), lda = Leading(n), off = std::max(n - 1, 0);
  const char uplo = batch.Letter("uplo", "LU");
  const Part a = batch.Overwritten(0, "a", 0, "form", Square(n));
  const Part diagonal = batch.RealResult(1, "d", n), off_diagonal = batch.RealResult(2, "e", off);
  const Part tau = batch.Result(3, "tau", off), infos = batch.IntegerResult(4, "info", 1);
  const Function sytrd = batch.Routine("sytrd", "hetrd");
  batch.ForEach(1, &infos, [&](int64_t i, const Work& work) {
    return Batch::CallAlike(sytrd, work, &uplo, &n, a(i), &lda, diagonal(i), off_diagonal(i), tau(i));
  });
}

void TridiagonalSolve(const JaxCall& call) {
  const Batch batch(call, "b");
  const int n = batch.rows(), columns = batch.columns(), ldb = Leading(n);
  // JAX's lower diagonal begins with an element that is not in the matrix.
  const Part lower = batch.Overwritten(0, "dl", 0, "dl_out", n), diagonal = batch.Overwritten(1, "d", 1, "d_out", n);
  const Part upper = batch.Overwritten(2, "du", 2, "du_out", n);
  const Part b = batch.Overwritten(3, "b", 3, "x", static_cast<int64_t>(n) * columns);
  const Part infos = batch.IntegerResult(4, "info", 1);
  const Function gtsv = batch.Routine("gtsv", "gtsv");
  batch.ForEach(1, &infos, [&](int64_t i, const Work&) {
    int info = 0;
    if (i != kQuery) {
      char* first = lower(i) + batch.scalar().bytes;
      gtsv(&n, &columns, n > 0 ? first : lower(i), diagonal(i), upper(i), b(i), &ldb, &info);
    }
    return info;
  });
}

}  // namespace hlo_dispatch::lapack
