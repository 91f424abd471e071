# For programs that are built against an installed hlo-dispatch:
#
#   find_package(hlo_dispatch_kernels REQUIRED PATHS <what `hlo-dispatch doctor --paths` calls cmake>)
#   target_link_libraries(program PRIVATE hlo_dispatch::kernels)
get_filename_component(_hlo_dispatch_package "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
if(NOT TARGET hlo_dispatch::kernels)
  add_library(hlo_dispatch::kernels SHARED IMPORTED)
  set_target_properties(hlo_dispatch::kernels PROPERTIES
    IMPORTED_LOCATION "${_hlo_dispatch_package}/libhlo_dispatch_kernels.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_hlo_dispatch_package}/include")
endif()
unset(_hlo_dispatch_package)
