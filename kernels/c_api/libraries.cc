// C API of vendor libraries: discovery, loading, loading on demand.
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "c_api/error.h"
#include "common/failure.h"
#include "common/loader.h"
#include "common/provider.h"
#include "common/shared_object.h"
#include "common/signal_handler_guard.h"
#include "hlo_dispatch/kernels.h"
#include "onednn/library.h"
#include "onemkl/library.h"
#include "svml/library.h"

using hlo_dispatch::Failure;
using hlo_dispatch::FailureKind;
using hlo_dispatch::Provider;
using hlo_dispatch::SharedObject;
using hlo_dispatch::SignalHandlerGuard;
using hlo_dispatch::host::Guarded;

struct hlo_dispatch_signals {
  SignalHandlerGuard guard;
};

namespace {

const SharedObject& OnednnFile() {
  static const auto* file = new SharedObject{"libdnnl.so.3", "HLO_DISPATCH_ONEDNN_LIBRARY"};
  return *file;
}

const SharedObject& OnemklFile() {
  static const auto* file = new SharedObject{"libmkl_rt.so.3", "HLO_DISPATCH_MKL_LIBRARY"};
  return *file;
}

const SharedObject& SvmlFile() {
  static const auto* file = new SharedObject{"libsvml.so", "HLO_DISPATCH_SVML_LIBRARY"};
  return *file;
}

// The file to load. Where only the system's loader knows it, that says where it is.
std::string Found(const char* path, const SharedObject& object) {
  if (path != nullptr) return path;
  const std::string found = object.Find(hlo_dispatch::DirectoryOf(hlo_dispatch_library_path()));
  if (found != object.file) return found;
  try {
    return hlo_dispatch::PathOf(hlo_dispatch::OpenWithDependencies(found), found);
  } catch (const Failure& failure) {
    throw Failure(failure.kind(), std::string(failure.what()) + "; name its file in " + object.variable);
  }
}

std::atomic<hlo_dispatch_loader> hosts_loader{nullptr};

void Fail(void* why, const char* sentence) { *static_cast<std::string*>(why) = sentence; }

std::string LoadForHost(const std::string& name) {
  std::string problem;
  if (const hlo_dispatch_loader load = hosts_loader.load()) {
    load(name.c_str(), Fail, &problem);
    return problem;
  }
  hlo_dispatch_error* error = nullptr;
  if (name == "oneDNN") {
    error = hlo_dispatch_load_onednn(nullptr, /*bind_threads=*/0, nullptr);
  } else if (name == hlo_dispatch::kMklName) {
    error = hlo_dispatch_load_onemkl(nullptr, nullptr);
  } else if (name == hlo_dispatch::kSvmlName) {
    error = hlo_dispatch_load_svml(nullptr, nullptr);
  } else {
    return "a host without Python has to offer it: hlo_dispatch_offer_scipy()";
  }
  if (error == nullptr) return problem;
  problem = hlo_dispatch_error_message(error);
  hlo_dispatch_error_free(error);
  return problem;
}

[[maybe_unused]] const bool loader_is_set = [] {
  hlo_dispatch::SetLoader(LoadForHost);
  return true;
}();

}  // namespace

hlo_dispatch_error* hlo_dispatch_load_onednn(const char* path, int bind_threads, hlo_dispatch_loaded* loaded) {
  return Guarded([&] {
    const SignalHandlerGuard guard;
    const auto& library = hlo_dispatch::onednn::Library::Load(Found(path, OnednnFile()), bind_threads != 0);
    if (loaded == nullptr) return;
    *loaded = {library.path().c_str(), library.version().c_str(), library.runtime().c_str(),
               library.native_engine_problem().c_str()};
  });
}

hlo_dispatch_error* hlo_dispatch_load_onemkl(const char* path, hlo_dispatch_loaded* loaded) {
  return Guarded([&] {
    const SignalHandlerGuard guard;
    const auto& library = hlo_dispatch::onemkl::Load(Found(path, OnemklFile()));
    if (loaded == nullptr) return;
    *loaded = {library.path.c_str(), library.version.c_str(), library.runtime.c_str(), ""};
  });
}

hlo_dispatch_error* hlo_dispatch_load_svml(const char* path, hlo_dispatch_loaded* loaded) {
  return Guarded([&] {
    const SignalHandlerGuard guard;
    const auto& library = hlo_dispatch::svml::Load(Found(path, SvmlFile()));
    if (loaded == nullptr) return;
    *loaded = {library.path.c_str(), library.version.c_str(), "its caller's threads", ""};
  });
}

hlo_dispatch_error* hlo_dispatch_offer_scipy(const char* const* names, void* const* addresses, size_t count,
                                             const char* version) {
  return Guarded([&] {
    std::map<std::string, void*> functions;
    for (size_t i = 0; i < count; ++i) functions.emplace(names[i], addresses[i]);
    Provider::OfferScipy(std::move(functions), version);
  });
}

void hlo_dispatch_load_with(hlo_dispatch_loader load) { hosts_loader.store(load); }

hlo_dispatch_signals* hlo_dispatch_keep_signals() { return new hlo_dispatch_signals(); }

void hlo_dispatch_restore_signals(hlo_dispatch_signals* signals) { delete signals; }
