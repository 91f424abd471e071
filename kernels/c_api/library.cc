// C API of the library's versions, the processors, and errors.
#include <dlfcn.h>

#include <climits>
#include <cstdlib>
#include <string>

#include "c_api/error.h"
#include "common/peak.h"
#include "common/provider.h"
#include "common/registry.h"
#include "hlo_dispatch/kernels.h"

int hlo_dispatch_interface() { return HLO_DISPATCH_INTERFACE; }

const char* hlo_dispatch_version() { return HLO_DISPATCH_PACKAGE_VERSION; }

const char* hlo_dispatch_own_version() { return hlo_dispatch::kOwnVersion; }

int64_t hlo_dispatch_abi() { return hlo_dispatch::kAbi; }

const char* hlo_dispatch_library_path() {
  static const std::string* path = [] {
    Dl_info found{};
    if (dladdr(reinterpret_cast<void*>(&hlo_dispatch_interface), &found) == 0) return new std::string();
    char whole[PATH_MAX];
    return new std::string(realpath(found.dli_fname, whole) == nullptr ? found.dli_fname : whole);
  }();
  return path->c_str();
}

int64_t hlo_dispatch_nanoseconds_at_peak(int threads, int64_t rounds) {
  return hlo_dispatch::NanosecondsAtPeak(threads, rounds);
}

hlo_dispatch_error_kind hlo_dispatch_error_kind_of(const hlo_dispatch_error* error) { return error->kind; }

const char* hlo_dispatch_error_message(const hlo_dispatch_error* error) { return error->message.c_str(); }

void hlo_dispatch_error_free(hlo_dispatch_error* error) { delete error; }
