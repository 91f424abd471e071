#include "common/provider.h"

#include <dlfcn.h>

#include <memory>
#include <mutex>
#include <utility>

#include "common/failure.h"
#include "common/loader.h"

namespace hlo_dispatch {

namespace {

std::mutex mutex;

}  // namespace

std::map<std::string, std::unique_ptr<const Provider>>& Provider::Offered() {
  static auto* offered = [] {
    auto* providers = new std::map<std::string, std::unique_ptr<const Provider>>();
    std::unique_ptr<Provider> own(new Provider());
    own->name_ = kOwnName;
    own->version_ = kOwnVersion;
    own->is_own_ = true;
    providers->emplace(own->name_, std::move(own));
    return providers;
  }();
  return *offered;
}

const Provider& Provider::Get(const std::string& name) {
  if (const Provider* provider = FindOffered(name)) return *provider;
  LoadNow(name);
  if (const Provider* provider = FindOffered(name)) return *provider;
  Unavailable(name + " is not loaded in this process");
}

const Provider* Provider::FindOffered(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex);
  auto found = Offered().find(name);
  return found == Offered().end() ? nullptr : found->second.get();
}

void Provider::OfferMkl(const std::string& path, const std::string& version) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) Unavailable(path + " could not be loaded: " + dlerror());
  std::unique_ptr<Provider> provider(new Provider());
  provider->name_ = kMklName;
  provider->version_ = version;
  provider->handle_ = handle;
  provider->set_threads_ = reinterpret_cast<int (*)(int)>(dlsym(handle, "MKL_Set_Num_Threads_Local"));
  if (provider->set_threads_ == nullptr) Unavailable(path + " is not oneMKL: it lacks MKL_Set_Num_Threads_Local");
  std::lock_guard<std::mutex> lock(mutex);
  Offered().emplace(kMklName, std::move(provider));
}

void Provider::OfferScipy(std::map<std::string, void*> functions, const std::string& version) {
  std::unique_ptr<Provider> provider(new Provider());
  provider->name_ = kScipyName;
  provider->version_ = version;
  provider->functions_ = std::move(functions);
  std::lock_guard<std::mutex> lock(mutex);
  Offered().emplace(kScipyName, std::move(provider));
}

void Provider::OfferHandle(const std::string& name, void* handle, const std::string& version) {
  std::unique_ptr<Provider> provider(new Provider());
  provider->name_ = name;
  provider->version_ = version;
  provider->handle_ = handle;
  std::lock_guard<std::mutex> lock(mutex);
  Offered().emplace(name, std::move(provider));
}

void Provider::CheckVersion(const std::string& planned) const {
  if (planned == version_) return;
  Unavailable("this executable was planned for " + name_ + " " + planned + ", but " + name_ + " " + version_ +
              " is loaded; compile it again");
}

void* Provider::Find(const std::string& function) const {
  void* found = nullptr;
  if (handle_ != nullptr) {
    found = dlsym(handle_, (function + "_").c_str());
  } else if (auto entry = functions_.find(function); entry != functions_.end()) {
    found = entry->second;
  }
  if (found != nullptr) return found;
  Unsupported(name_ + " " + version_ + " has no routine " + function);
}

void* Provider::FindSymbol(const std::string& name) const {
  void* found = handle_ == nullptr ? nullptr : dlsym(handle_, name.c_str());
  if (found != nullptr) return found;
  Unsupported(name_ + " " + version_ + " has no function " + name);
}

ThreadLimit::ThreadLimit(const Provider& provider, int64_t threads) : set_threads_(provider.set_threads_) {
  if (set_threads_ != nullptr) previous_ = set_threads_(static_cast<int>(threads));
}

ThreadLimit::~ThreadLimit() {
  if (set_threads_ != nullptr) set_threads_(previous_);
}

}  // namespace hlo_dispatch
