#include "lapack/options.h"

#include "common/failure.h"

namespace hlo_dispatch::lapack {

namespace {

std::string Size(const Matrix& a) {
  return a.role + " of " + std::to_string(a.batch()) + " x " + std::to_string(a.rows) + " x " +
         std::to_string(a.columns);
}

}  // namespace

char Option(const Attributes& attributes, const std::string& name, const std::string& letters) {
  const int64_t code = attributes.Integer(name);
  for (char letter : letters) {
    if (code == letter) return letter;
  }
  Invalid("attribute '" + name + "': expected the code of one of " + letters + ", got " + std::to_string(code));
}

Copying CopyingOf(const Attributes& attributes, const Matrix& a) {
  if (!attributes.Has("symmetrised") || attributes.Integer("symmetrised") == 0) return Copying::kPlain;
  if (a.scalar.is_complex()) Unsupported("attribute 'symmetrised': expected real matrices, got " + a.scalar.prefix);
  return Copying::kSymmetrised;
}

char Flipped(char uplo) { return uplo == 'L' ? 'U' : 'L'; }

void CheckSame(const Matrix& a, const Matrix& b) {
  if (a.batch() == b.batch() && a.rows == b.rows && a.columns == b.columns) return;
  Invalid("expected matrices of one size, got " + Size(a) + " and " + Size(b));
}

void CheckSquare(const Matrix& a) {
  if (a.rows == a.columns) return;
  Invalid("expected square matrices, got " + Size(a));
}

void CheckSize(const Matrix& a, int64_t rows, int64_t columns) {
  if (a.rows == rows && a.columns == columns) return;
  Invalid("expected " + a.role + " of " + std::to_string(rows) + " x " + std::to_string(columns) + ", got " + Size(a));
}

}  // namespace hlo_dispatch::lapack
