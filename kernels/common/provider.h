// Providers of BLAS and LAPACK in this process: oneMKL, opened at run time, or the OpenBLAS inside SciPy that JAX
// itself calls. Both offer the same Fortran routines, so every family of this folder serves both. For a few routines
// there is a third one, our own (blocked.h).
#ifndef HLO_DISPATCH_COMMON_PROVIDER_H_
#define HLO_DISPATCH_COMMON_PROVIDER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace hlo_dispatch {

inline constexpr char kMklName[] = "oneMKL";
inline constexpr char kScipyName[] = "SciPy";
inline constexpr char kSvmlName[] = "SVML";
inline constexpr char kOwnName[] = "hlo-dispatch";

// Counts up when results or speed of any code of our own change, copies for oneDNN included.
inline constexpr char kOwnVersion[] = "17";

class Provider {
 public:
  // The providers by name. One that was not offered yet is
  // loaded now; throws Failure(kUnavailable) where that fails.
  static const Provider& Get(const std::string& name);
  // Offers oneMKL, whose functions are looked up in the library at `path`, or the same functions by address.
  // Offering one again is harmless.
  static void OfferMkl(const std::string& path, const std::string& version);
  static void OfferScipy(std::map<std::string, void*> functions, const std::string& version);
  // A library that has C functions only, by dlopen's handle.
  static void OfferHandle(const std::string& name, void* handle, const std::string& version);

  const std::string& name() const { return name_; }
  const std::string& version() const { return version_; }
  bool is_mkl() const { return name_ == kMklName; }
  bool is_own() const { return is_own_; }

  // The routine's address; throws Failure(kUnsupported) where the provider lacks it.
  template <typename Function>
  Function Get(const std::string& prefix, const std::string& routine) const {
    return reinterpret_cast<Function>(Find(prefix + routine));
  }

  // A C function of the library's, no Fortran routine; throws likewise.
  template <typename Function>
  Function Symbol(const std::string& name) const {
    return reinterpret_cast<Function>(FindSymbol(name));
  }

  // Throws Failure(kUnavailable) unless `planned` is this provider's version.
  void CheckVersion(const std::string& planned) const;

 private:
  Provider() = default;
  // Offered providers live as long as the process: compiled executables refer to them.
  static std::map<std::string, std::unique_ptr<const Provider>>& Offered();
  static const Provider* FindOffered(const std::string& name);
  void* Find(const std::string& function) const;
  void* FindSymbol(const std::string& name) const;

  std::string name_;
  std::string version_;
  void* handle_ = nullptr;
  bool is_own_ = false;
  std::map<std::string, void*> functions_;
  int (*set_threads_)(int) = nullptr;

  friend class ThreadLimit;
};

// While it lives, the provider's routines called by this thread use at most so many threads. oneMKL only: SciPy's
// OpenBLAS has no limit per thread, and chooses its threads as under stock JAX.
class ThreadLimit {
 public:
  ThreadLimit(const Provider& provider, int64_t threads);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int (*set_threads_)(int);
  int previous_ = 0;
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_PROVIDER_H_
