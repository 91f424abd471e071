#include "svml/library.h"

#include <dlfcn.h>
#include <elf.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <vector>

#include "common/failure.h"
#include "common/provider.h"
#include "common/shared_object.h"

namespace hlo_dispatch::svml {

namespace {

constexpr char kSection[] = ".comment";

// The number in "Intel(R) oneAPI DPC++/C++ Compiler 2026.2.0 (…)", which the file's compiler left in it: the library
// itself has no function that says its version.
std::string VersionIn(const std::string& comment) {
  const std::string before = "Compiler ";
  const size_t found = comment.find(before);
  if (found == std::string::npos) return "";
  const size_t begin = found + before.size();
  return comment.substr(begin, comment.find_first_not_of("0123456789.", begin) - begin);
}

std::string ReadAt(std::ifstream& file, uint64_t offset, uint64_t bytes) {
  constexpr uint64_t kMost = 1 << 16;
  std::string read(bytes > kMost ? 0 : bytes, '\0');
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(read.data(), static_cast<std::streamsize>(read.size()));
  return file ? read : "";
}

// The section of that name of an ELF file of 64 bits; empty where there is none.
std::string ReadSection(const std::string& path, const std::string& name) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  const std::string first = ReadAt(file, 0, sizeof(header));
  if (first.size() != sizeof(header)) return "";
  std::memcpy(&header, first.data(), sizeof(header));
  const std::string read = ReadAt(file, header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr));
  std::vector<Elf64_Shdr> sections(read.size() / sizeof(Elf64_Shdr));
  std::memcpy(sections.data(), read.data(), sections.size() * sizeof(Elf64_Shdr));
  if (header.e_shstrndx >= sections.size()) return "";
  const Elf64_Shdr& named = sections[header.e_shstrndx];
  const std::string names = ReadAt(file, named.sh_offset, named.sh_size);
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_name >= names.size() || name != names.c_str() + section.sh_name) continue;
    return ReadAt(file, section.sh_offset, section.sh_size);
  }
  return "";
}

}  // namespace

const Loaded& Load(const std::string& path) {
  static std::mutex mutex;
  static const Loaded* loaded = nullptr;  // never deleted
  std::lock_guard<std::mutex> lock(mutex);
  if (loaded != nullptr) {
    CheckIsLoaded(loaded->path, path);
    return *loaded;
  }
  void* handle = OpenWithDependencies(path);
  if (dlsym(handle, "__svml_sinf4_ha") == nullptr) {
    Unavailable(path + " is not SVML: it has no function __svml_sinf4_ha");
  }
  auto made = std::make_unique<Loaded>();
  made->path = path;
  made->version = VersionIn(ReadSection(path, kSection));
  if (made->version.empty()) made->version = "unknown";
  Provider::OfferHandle(kSvmlName, handle, made->version);
  loaded = made.release();
  return *loaded;
}

}  // namespace hlo_dispatch::svml
