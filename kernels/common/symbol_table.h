// Symbol table of a shared library's file: addresses of functions that it does not export.
//
// The loader needs exported names only. A file that was not stripped has all names, with C++'s types in them.
#ifndef HLO_DISPATCH_COMMON_SYMBOL_TABLE_H_
#define HLO_DISPATCH_COMMON_SYMBOL_TABLE_H_

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace hlo_dispatch {

class SymbolTable {
 public:
  // Of the file from which the code at this address was loaded. Throws Failure(kUnavailable) where it cannot be read,
  // or has no such table.
  explicit SymbolTable(const void* code);
  ~SymbolTable();
  SymbolTable(const SymbolTable&) = delete;
  SymbolTable& operator=(const SymbolTable&) = delete;

  // Where the function is. Throws Failure(kUnavailable) unless there is exactly one of that name (mangled) and its code
  // in memory is what the file has there: the file may have been replaced since it was loaded.
  void* Function(const std::string& name) const;

 private:
  // The object at this offset of the file, and so many after it; nullptr where the file ends before that.
  template <typename Object>
  const Object* At(uint64_t offset, uint64_t count = 1) const;
  void Find();
  const char* CodeOf(const Elf64_Sym& function) const;

  const char* file_ = nullptr;
  size_t bytes_ = 0;
  std::string path_;
  uintptr_t base_ = 0;  // what is added to the file's addresses
  const Elf64_Ehdr* header_ = nullptr;
  const Elf64_Phdr* segments_ = nullptr;
  const Elf64_Sym* symbols_ = nullptr;
  uint64_t count_ = 0;
  const char* names_ = nullptr;
  uint64_t names_bytes_ = 0;
};

}  // namespace hlo_dispatch

#endif  // HLO_DISPATCH_COMMON_SYMBOL_TABLE_H_
