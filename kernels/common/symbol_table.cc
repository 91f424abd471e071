#include "common/symbol_table.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "common/failure.h"

namespace hlo_dispatch {

SymbolTable::SymbolTable(const void* code) {
  Dl_info info;
  link_map* map = nullptr;
  if (dladdr1(code, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 || map == nullptr) {
    Unavailable("the loader does not know where its code comes from");
  }
  path_ = info.dli_fname;
  base_ = map->l_addr;
  const int descriptor = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat found;
  void* mapped = MAP_FAILED;
  if (descriptor >= 0 && fstat(descriptor, &found) == 0 && found.st_size > 0) {
    bytes_ = static_cast<size_t>(found.st_size);
    mapped = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, descriptor, 0);
  }
  if (descriptor >= 0) close(descriptor);
  if (mapped == MAP_FAILED) Unavailable(path_ + " cannot be read");
  file_ = static_cast<const char*>(mapped);
  try {
    Find();
  } catch (...) {
    munmap(mapped, bytes_);
    throw;
  }
}

SymbolTable::~SymbolTable() { munmap(const_cast<char*>(file_), bytes_); }

template <typename Object>
const Object* SymbolTable::At(uint64_t offset, uint64_t count) const {
  const bool fits = offset <= bytes_ && count <= (bytes_ - offset) / sizeof(Object);
  if (!fits || offset % alignof(Object) != 0) return nullptr;
  return reinterpret_cast<const Object*>(file_ + offset);
}

void SymbolTable::Find() {
  header_ = At<Elf64_Ehdr>(0);
  if (header_ == nullptr || std::memcmp(header_->e_ident, ELFMAG, SELFMAG) != 0 ||
      header_->e_ident[EI_CLASS] != ELFCLASS64 || header_->e_phentsize != sizeof(Elf64_Phdr)) {
    Unavailable(path_ + " is not a shared library of 64 bits");
  }
  segments_ = At<Elf64_Phdr>(header_->e_phoff, header_->e_phnum);
  const bool has_sections = header_->e_shnum > 0 && header_->e_shentsize == sizeof(Elf64_Shdr);
  const auto* sections = has_sections ? At<Elf64_Shdr>(header_->e_shoff, header_->e_shnum) : nullptr;
  for (int i = 0; segments_ != nullptr && sections != nullptr && i < header_->e_shnum; ++i) {
    const Elf64_Shdr& table = sections[i];
    if (table.sh_type != SHT_SYMTAB || table.sh_link >= header_->e_shnum) continue;
    const Elf64_Shdr& names = sections[table.sh_link];
    count_ = table.sh_size / sizeof(Elf64_Sym);
    symbols_ = At<Elf64_Sym>(table.sh_offset, count_);
    names_bytes_ = names.sh_size;
    names_ = At<char>(names.sh_offset, names_bytes_);
    if (symbols_ != nullptr && names_ != nullptr && names_bytes_ > 0 && names_[names_bytes_ - 1] == '\0') return;
  }
  Unavailable(path_ + " has no table of its symbols: it was stripped");
}

const char* SymbolTable::CodeOf(const Elf64_Sym& function) const {
  for (int i = 0; i < header_->e_phnum; ++i) {
    const Elf64_Phdr& segment = segments_[i];
    const bool is_code = segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0;
    if (!is_code || function.st_value < segment.p_vaddr) continue;
    const uint64_t inside = function.st_value - segment.p_vaddr;
    if (inside > segment.p_filesz || function.st_size > segment.p_filesz - inside) continue;
    return At<char>(segment.p_offset + inside, function.st_size);
  }
  return nullptr;
}

void* SymbolTable::Function(const std::string& name) const {
  const Elf64_Sym* found = nullptr;
  for (uint64_t i = 0; i < count_; ++i) {
    const Elf64_Sym& symbol = symbols_[i];
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_name >= names_bytes_) continue;
    if (symbol.st_size == 0 || name != names_ + symbol.st_name) continue;
    if (found != nullptr && found->st_value != symbol.st_value) Unavailable(path_ + " has more than one " + name);
    found = &symbol;
  }
  if (found == nullptr) Unavailable(path_ + " has no function " + name);
  const char* code = CodeOf(*found);
  const char* loaded = reinterpret_cast<const char*>(base_ + found->st_value);
  // What lies at an address of another file's may not be memory at all: only inside what the loader mapped from it.
  Dl_info info;
  const bool is_inside = dladdr(loaded, &info) != 0 && path_ == info.dli_fname;
  if (code == nullptr || !is_inside || std::memcmp(code, loaded, found->st_size) != 0) {
    Unavailable(path_ + " is not the file that was loaded: another " + name + " is in memory");
  }
  return const_cast<char*>(loaded);
}

}  // namespace hlo_dispatch
